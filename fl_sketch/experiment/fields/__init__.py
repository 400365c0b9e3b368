"""The fields of a config in groups, each with its check.

Of `run`, `clients` (after the problem), `method` and `privacy` each extends the
one before it, whose fields it may check; `experiment.config.Config` is all.
`registries` checks the parts that fields name.
"""
