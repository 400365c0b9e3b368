"""Differential privacy: accounting, private aggregation, and audits.

On the host, without JAX: `types` describes what a run releases, `statements`
what is guaranteed, `accounting` computes epsilon and calibrates noise (from
`events`, `profiles`, `gaussian`, `allocation` and `calibration`; `losses`,
`step_losses` and `tilted_losses` compose privacy losses), `hypothesis_tests`
has trade-off curves and mu, and `groups` epsilon of several units. In JAX:
`clipping` bounds contributions, `grid` makes integers of them, whose noise is
`discrete_gaussian`, `mechanisms` are sums with noise, `aggregation` is the
uplink that makes a cohort's mean private, its bound fixed or of
`quantile_bound`, `private_metrics` are noisy losses and counts,
`secure_aggregation` simulates masks, and `generators` name what draws the
noise, such as `chacha20`. Noise may be correlated over rounds: `correlation`
has the weights, the account and the error, without JAX, and `banded_noise`
draws it. `canaries`, `canary_scores` and `audit` attack private rounds and
bound epsilon from below; `summation_attack` uses the order in which floats are
added. `one_run` bounds mu by one run with many canaries, without JAX.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.privacy import (
    accounting,
    aggregation,
    allocation,
    audit,
    banded_noise,
    calibration,
    canaries,
    canary_scores,
    chacha20,
    clipping,
    correlation,
    discrete_gaussian,
    events,
    gaussian,
    generators,
    given_noise,
    grid,
    groups,
    hypothesis_tests,
    losses,
    mechanisms,
    one_run,
    one_run_guesses,
    private_metrics,
    profiles,
    quantile_bound,
    secure_aggregation,
    statements,
    step_losses,
    summation_attack,
    tilted_losses,
    types,
  )

__all__ = [
  'accounting', 'aggregation', 'allocation', 'audit', 'banded_noise',
  'calibration', 'canaries', 'canary_scores', 'chacha20', 'clipping',
  'correlation', 'discrete_gaussian', 'events', 'gaussian', 'generators',
  'given_noise', 'grid', 'groups', 'hypothesis_tests', 'losses',
  'mechanisms', 'one_run', 'one_run_guesses', 'private_metrics', 'profiles',
  'quantile_bound', 'secure_aggregation', 'statements', 'step_losses',
  'summation_attack', 'tilted_losses', 'types',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
