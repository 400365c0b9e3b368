"""Privacy accounting on the host, without JAX.

`types` describes what a run releases and `statements` what is guaranteed;
`epsilon` computes epsilon, delta, and the noise for a target.
"""

from fl_sketch.accounting.epsilon import (
  calibrate_noise_multiplier,
  compose,
  compute_delta,
  compute_epsilon,
  epsilon_curve,
  parallel_composition,
)
from fl_sketch.accounting.gaussian import (
  gaussian_epsilon,
  gaussian_noise_multiplier,
)
from fl_sketch.accounting.statements import PrivacyStatement
from fl_sketch.accounting.types import (
  Adjacency,
  CalibrationError,
  ComposedMechanism,
  GaussianMechanism,
  Sampling,
  UnsupportedAccountingError,
)

__all__ = [
  'compute_epsilon', 'calibrate_noise_multiplier', 'GaussianMechanism',
  'Sampling', 'Adjacency', 'compose', 'ComposedMechanism',
  'parallel_composition', 'compute_delta', 'epsilon_curve', 'gaussian_epsilon',
  'gaussian_noise_multiplier', 'PrivacyStatement',
  'CalibrationError', 'UnsupportedAccountingError',
]  # fmt: skip
