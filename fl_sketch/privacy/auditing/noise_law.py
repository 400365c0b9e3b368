r"""Test of the law of released noise: covariance, tails, and repeated draws.

Rounds of zero data broadcast noise alone. Whitened by the claimed covariance,
f[runs, rounds, numbers], it is independent N(0, 1) if the claim is true. Then
sums of squares over disjoint directions are chi-square, and the uncentred
correlation r of two vectors of n such numbers has
:math:`(1 + r) / 2 \sim \mathrm{Beta}(\frac{n-1}2, \frac{n-1}2)`. How many
numbers are beyond a bound is binomial. The smallest chance is multiplied by the
number of tests (Bonferroni).

The test cannot see noise that others know, noise that depends on data, or
numbers that are uncorrelated and normal, but dependent.
"""

from collections.abc import Iterator, Sequence
import itertools
from typing import NamedTuple

from fl_sketch.accounting.correlation import ONE, Correlation
import numpy as np
from scipy import fft, special, stats

_MOST_PAIRED = 2048  # variables up to which all pairs are compared
_MOST_APART = 8  # rounds between two whose streams are compared
_RAREST = 20  # tails of chance 2^-4 to 2^-20 are counted


class Finding(NamedTuple):
  """How far noise is from its claimed law."""

  chance: float  # upper bound for noise this far from the claim
  kind: str  # of the directions along which it is far

  def text(self) -> str:
    """Return how likely the noise is under the claim."""
    return (
      'noise: as far from its claimed law with chance '
      f'{self.chance:.2g} at most ({self.kind})'
    )


def whitened(noise: np.ndarray, correlation: Correlation | None) -> np.ndarray:
  """Return the independent draws of noise [..., rounds, numbers]: f64."""
  noise = np.asarray(noise, np.float64)
  if correlation is None:
    return noise
  rounds, weights = noise.shape[-2], correlation.weights
  matrix = np.zeros((rounds, rounds))
  for t in range(rounds):
    for j, weight in enumerate(weights[: t % correlation.rounds + 1]):
      matrix[t, t - j] = weight / ONE
  return np.linalg.solve(matrix, noise)


def evaluate(white: np.ndarray, leaves: Sequence[int] = ()) -> Finding:
  """Return a bound on the chance of noise this far from independent N(0, 1).

  >>> rng = np.random.default_rng(0)
  >>> noise = rng.normal(size=(5, 4, 16))
  >>> evaluate(noise).chance > 1e-3, evaluate(0.5 * noise).chance < 1e-12
  (True, True)

  Under the claim it is at most c with probability c at most. `white` is
  f[runs, rounds, numbers], of `whitened`, over its deviation; `leaves` are the
  sizes of the arrays of a broadcast, in order.
  """
  x = np.asarray(white, np.float64)
  if not np.isfinite(x).all():
    return Finding(0.0, 'not finite')
  chances = [*_chances(x, leaves)]
  kind, chance = min(chances, key=lambda pair: pair[1])
  return Finding(min(1.0, len(chances) * chance), kind)


def _chances(x, leaves) -> Iterator[tuple[str, float]]:
  """Yield (kind of directions, chance of the noise along them)."""
  runs, rounds, numbers = x.shape
  views = {
    'rounds': x.swapaxes(1, 2).reshape(-1, rounds),
    'numbers': x.reshape(-1, numbers),
    'rounds and numbers': x.reshape(runs, -1),
    'draws': x.reshape(-1, numbers)[:_MOST_PAIRED].T,
  }
  yield 'size', _of_squares([np.sum(x**2)], [x.size])
  yield 'size of a round', _of_squares((x**2).sum(-1).ravel(), numbers)
  yield 'tails', _of_tails(np.abs(x))
  for kind, view in views.items():
    both = np.concatenate([view, np.asarray(fft.dct(view, norm='ortho'))], 1)
    yield kind, _of_squares((both**2).sum(0), len(view))
    if 1 < view.shape[1] <= _MOST_PAIRED and len(view) > 1:
      norms = np.sqrt((view**2).sum(0))
      above = np.triu_indices(view.shape[1], 1)
      pairs = (view.T @ view)[above], np.outer(norms, norms)[above]
      yield f'pairs of {kind}', _of_products(*pairs, len(view))
  waves, norms = np.fft.rfft(x), np.sqrt((x**2).sum((0, 2)))[:, None]
  for apart in range(1, min(rounds, _MOST_APART + 1)):
    # Each round and one before it, shifted by any offset.
    both = waves[:, apart:] * waves[:, :-apart].conj()
    products = np.fft.irfft(both, numbers).sum(0)
    pairs = products, norms[apart:] * norms[:-apart] * np.ones(numbers)
    yield 'streams', _of_products(*pairs, runs * numbers)
  ends = np.cumsum([0, *leaves])
  parts = [x[..., a:b] for a, b in itertools.pairwise(ends) if a < numbers]
  pairs = [
    *(_neighbours(x, 2**k) for k in range(numbers.bit_length() - 1)),
    *((y[..., : z.shape[-1]], z[..., : y.shape[-1]])
      for y, z in itertools.combinations(parts, 2)),
  ]  # fmt: skip
  if pairs:
    squares = [np.sum((y - z) ** 2) / 2 for y, z in pairs]
    yield 'distances', _of_squares(squares, [y.size for y, _ in pairs])


def _neighbours(x, apart: int) -> tuple[np.ndarray, np.ndarray]:
  """Return pairs of numbers `apart` places apart, each in at most one pair."""
  whole = x.shape[-1] // (2 * apart) * 2 * apart
  pairs = x[..., :whole].reshape(*x.shape[:-1], -1, 2, apart)
  return pairs[..., 0, :], pairs[..., 1, :]


def _of_squares(squares, freedom) -> float:
  """Return the p-value of chi-square statistics, Bonferroni-corrected."""
  low = special.chdtr(freedom, squares)
  chances = 2 * np.minimum(low, special.chdtrc(freedom, squares))
  return float(chances.size * chances.min())


def _of_tails(magnitudes) -> float:
  """Return the p-value of how many are in each tail, Bonferroni-corrected."""
  # A finite grid changes the chance of a small tail less than that of a large.
  tails = 0.5 ** np.arange(4, _RAREST + 1)
  bounds = -special.ndtri(tails / 2)
  counts = np.array([(magnitudes > bound).sum() for bound in bounds])
  law = stats.binom(magnitudes.size, tails)
  chances = 2 * np.minimum(law.cdf(counts), law.sf(counts - 1))
  return float(chances.size * chances.min())


def _of_products(products, norms, size) -> float:
  """Return the p-value of uncentred correlations of `size` numbers each."""
  r = np.abs(products) / np.maximum(norms, np.finfo(float).tiny)
  half = (size - 1) / 2
  tail = special.betainc(half, half, (1 - min(1.0, r.max())) / 2)
  return float(2 * r.size * tail)
