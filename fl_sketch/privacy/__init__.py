"""Differential privacy: accounting, private aggregation, and audits.

On the host, without JAX: `types` describes what a run releases, `accounting`
computes epsilon and calibrates noise (from `events`, `profiles`, `gaussian` and
`calibration`), and `bounds` and `lemmas` have the formulas of papers. In JAX:
`clipping` bounds contributions, `mechanisms` add noise, `aggregation` is the
uplink that makes a cohort's mean private, `private_metrics` are noisy losses
and counts, `secure_aggregation` simulates masks, and `generators` name what
draws the noise, such as `chacha20`. `canaries`, `canary_scores` and `audit`
attack private rounds and bound epsilon from below.
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
    chacha20,
    clipping,
    events,
    gaussian,
    generators,
    lemmas,
    mechanisms,
    private_metrics,
    profiles,
    secure_aggregation,
    types,
  )

__all__ = [
  'accounting', 'aggregation', 'audit', 'bounds', 'calibration', 'canaries',
  'canary_scores', 'chacha20', 'clipping', 'events', 'gaussian', 'generators',
  'lemmas', 'mechanisms', 'private_metrics', 'profiles', 'secure_aggregation',
  'types',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
