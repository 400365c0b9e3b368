"""Audits that attack private rounds and bound epsilon from below.

`audit` plays many rounds with `canaries`, scored by `canary_scores`; `one_run`
bounds mu by one run with many canaries, from `one_run_guesses`, without JAX.
`noise_law` tests the covariance of noise over rounds and numbers.
`summation_attack` uses the order in which floats are added.
"""

from fl_sketch.utils import lazy

__all__ = [
  'audit', 'canaries', 'canary_scores', 'noise_law', 'one_run',
  'one_run_guesses', 'summation_attack',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
