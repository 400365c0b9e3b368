"""Differential privacy: accounting, private aggregation, and audits.

On the host, without JAX: `types` describes what a run releases, `accounting`
computes epsilon and calibrates noise (from `events`, `profiles`, `gaussian` and
`calibration`), and `bounds` and `lemmas` have the formulas of papers. In JAX:
`clipping` bounds contributions, `grid` makes integers of them, whose noise is
`discrete_gaussian`, `mechanisms` are sums with noise, `aggregation` is the
uplink that makes a cohort's mean private, its bound fixed or of
`quantile_bound`, `secure_aggregation` simulates masks. Noise may be correlated
over rounds: `correlation` has the weights, the account and the error, without
JAX, and `banded_noise` draws it.
`canaries`, `canary_scores` and `audit` attack private rounds and bound epsilon
from below; `summation_attack` uses the order in which floats are added.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.privacy import (
    accounting,
    aggregation,
    audit,
    banded_noise,
    bounds,
    calibration,
    canaries,
    canary_scores,
    clipping,
    correlation,
    discrete_gaussian,
    events,
    gaussian,
    grid,
    lemmas,
    mechanisms,
    profiles,
    quantile_bound,
    secure_aggregation,
    summation_attack,
    types,
  )

__all__ = [
  'accounting', 'aggregation', 'audit', 'banded_noise', 'bounds',
  'calibration', 'canaries', 'canary_scores', 'clipping', 'correlation',
  'discrete_gaussian', 'events', 'gaussian', 'grid', 'lemmas', 'mechanisms',
  'profiles', 'quantile_bound', 'secure_aggregation', 'summation_attack',
  'types',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
