"""Private mechanisms in JAX: bounds, integer grids, noise, and their sums."""

from fl_sketch.privacy.mechanisms import (
  banded_noise,
  chacha20_prng,
  clipping,
  discrete_gaussian,
  generators,
  given_noise,
  grid,
  private_mean,
  private_metrics,
  quantile_bound,
  secure_aggregation,
)
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
  'BOUNDS', 'banded_noise', 'chacha20_prng', 'clip_by_l2_norm', 'clipping',
  'discrete_gaussian', 'fixed_size_sample', 'gaussian_noise', 'generators',
  'given_noise', 'grid', 'noisy_gradient_sum', 'normalize_by_l2_norm',
  'poisson_sample', 'private_mean', 'private_metrics', 'privatize_sum',
  'quantile_bound', 'secure_aggregation',
]  # fmt: skip
