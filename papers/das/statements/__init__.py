"""Das, Hashemi, Sanghavi, Dhillon (arXiv:2106.07094) as functions.

`rates` has the convergence bounds of clipping and of normalising, `lemmas` the
constants of a problem, `tradeoffs` privacy against accuracy.
"""
