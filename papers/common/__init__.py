"""What the papers and studies share.

`statements` is the registry of the papers' statements; `evaluation` extends
formulas to arrays, `conditions` annotates and `symbols` names their arguments.
`tails` has inner products under random operators, `privacy_bounds` the privacy
formulas of the papers, `programs` rounds of an algorithm in other programs.

A `study` is a function of a `Workspace`, which runs and caches experiments, and
returns a report whose claims `verdicts` judges; `results` writes its files,
`pages` its Markdown, and `summaries` has its tables and figures.
"""
