"""The fields of a config in groups, each with its check.

`base` has what groups share; `registries` checks the parts that fields name.
Then come `run`, `problem`, `clients`, `method` and `privacy`, each a dataclass
that extends the one before it: its check reads its own fields and those of the
groups before. `experiment.config.Config` is all of them.
"""
