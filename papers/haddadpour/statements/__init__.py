"""Haddadpour, Karimi, Li, Li (arXiv:2008.04975) as functions.

`rates` has the convergence bounds of FedSKETCH and FedSKETCHGATE, `compressors`
the constants of PRIVIX and HEAPRIX, `lemmas` the steps of the proofs, `plans`
parameters for a target accuracy, and `tables` the comparison of costs.
"""
