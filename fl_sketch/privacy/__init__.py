"""Differential privacy: accounting, private aggregation, and audits.

On the host, without JAX: `types` describes what a run releases, `accounting`
computes epsilon and calibrates noise (from `events`, `profiles`, `gaussian` and
`calibration`), and `bounds` and `lemmas` have the formulas of papers. In JAX:
`clipping` bounds contributions, `mechanisms` add noise, `aggregation` is the
uplink that makes a cohort's mean private, `secure_aggregation` simulates masks.
`canaries`, `canary_scores` and `audit` attack private rounds and bound epsilon
from below; `one_run` bounds mu by one run with many canaries, without JAX.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.privacy import (
    accounting,
    aggregation,
    audit,
    bounds,
    calibration,
    canaries,
    canary_scores,
    clipping,
    events,
    gaussian,
    lemmas,
    mechanisms,
    one_run,
    one_run_guesses,
    profiles,
    secure_aggregation,
    types,
  )

__all__ = [
  'accounting', 'aggregation', 'audit', 'bounds', 'calibration', 'canaries',
  'canary_scores', 'clipping', 'events', 'gaussian', 'lemmas', 'mechanisms',
  'one_run', 'one_run_guesses', 'profiles', 'secure_aggregation', 'types',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
