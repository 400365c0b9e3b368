"""Song, Wang, Yu, Zhang (arXiv:2210.08371) as functions.

`convergence` has the theorems, `lemmas`, `plans`, `communication` and `privacy`
what they rest on and what follows from them, `leakage` the theorems on the
attack.
"""
