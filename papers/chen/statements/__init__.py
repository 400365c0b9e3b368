"""Chen, Li, Banerjee (arXiv:2411.06770) as functions.

`rates` has the convergence bounds of SAFL, `constants` and `corollaries` what
enters them and what follows, `gradients` bounds on gradient norms, and
`monitor` the lemmas on the steps of a run.
"""
