"""Private mechanisms in JAX: bounds, integer grids, noise, and their sums.

`clipping` bounds contributions, `grid` makes integers of them, whose noise is
`discrete_gaussian`; `sums` are sums with noise, and `aggregation` is the uplink
that makes a cohort's mean private, its bound fixed or of `quantile_bound`.
`private_metrics` are noisy losses and counts, `secure_aggregation` simulates
masks, `generators` name what draws the noise, such as `chacha20`, and
`banded_noise` draws noise that is correlated over rounds.
"""

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
