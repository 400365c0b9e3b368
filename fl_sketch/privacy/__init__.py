"""Differential privacy: mechanisms, audits, non-interference.

It imports none of them, since `accounting` does without JAX.
"""
