"""Differential privacy: what is released, what it costs, and its check.

`accounting` computes epsilon and calibrates noise, `bounds` has the formulas of
papers beside it, both on the host and without JAX; `types` describes what they
account for.
"""
