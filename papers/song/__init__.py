"""Song, Wang, Yu, Zhang, arXiv:2210.08371.

`statements`, `studies`, grids of `attacks`, and their configs.
"""
