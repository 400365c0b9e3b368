"""Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094.

`statements`, `studies`, and the config of its quadratics.
"""
