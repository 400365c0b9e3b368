"""Private mechanisms in JAX: bounds, integer grids, noise, and their sums."""

from fl_sketch.utils import lazy

__all__ = [
  'aggregation', 'banded_noise', 'chacha20', 'clipping', 'discrete_gaussian',
  'generators', 'given_noise', 'grid', 'private_metrics', 'quantile_bound',
  'secure_aggregation', 'sums',
]  # fmt: skip

_CLIPPING = 'BOUNDS', 'clip_by_l2_norm', 'normalize_by_l2_norm'
_SUMS = (
  'fixed_size_sample', 'gaussian_noise', 'noisy_gradient_sum',
  'poisson_sample', 'privatize_sum',
)  # fmt: skip
__getattr__ = lazy.attach(__name__, clipping=_CLIPPING, sums=_SUMS)
