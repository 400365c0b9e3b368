"""Differential privacy: what is released, what it costs, and its check.

`accounting` computes epsilon and calibrates noise, `bounds` has the formulas of
papers beside it, both on the host and without JAX; `types` describes what they
account for. `mechanisms` and `links` make a sum private; `plan` reads mechanism
and account from one config; `audit` and `canaries` attack the result.
"""
