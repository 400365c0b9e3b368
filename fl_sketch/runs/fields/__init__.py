"""The fields of a config in groups, each of which extends the one before it.

They are `run`, `clients` (after the problem), `method` and `privacy`.
"""
