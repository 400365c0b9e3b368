"""Private mechanisms in JAX: bounds, integer grids, noise, and their sums."""

from fl_sketch.privacy.mechanisms.clipping import (
  BOUNDS,
  clip_by_l2_norm,
  normalize_by_l2_norm,
)
from fl_sketch.privacy.mechanisms.sums import (
  fixed_size_sample,
  gaussian_noise,
  noisy_gradient_sum,
  poisson_sample,
  privatize_sum,
)

__all__ = [
  'BOUNDS', 'clip_by_l2_norm', 'fixed_size_sample', 'gaussian_noise',
  'noisy_gradient_sum', 'normalize_by_l2_norm', 'poisson_sample',
  'privatize_sum',
]  # fmt: skip
