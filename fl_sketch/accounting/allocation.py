r"""Privacy loss of random allocation: one step of every epoch, by a coin.

After s of the t steps of an epoch, with noise multiplier z, neighbours are in
both directions at most as far apart as

.. math::
  Q = N(0, z^2 I_s), \quad
  P = \frac{t - s}{t} Q + \frac1t \sum_{i \le s} N(e_i, z^2 I_s).

Under Q the likelihood ratio is a mean of independent log-normal numbers::

  Z = dP/dQ = ((t - s) + Y_1 + ... + Y_s) / t,  ln Y ~ N(-1/(2 z^2), 1/z^2).

Values move to a grid by mean-preserving spreads, which lower no divergence
(docs/concepts/accounting.md). Source: Chua et al., arXiv:2412.16802; Feldman
and Shenfeld, arXiv:2502.08202, 2602.17284.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
import scipy  # its packages load on first use

_REACH, _TAIL = 9.5, 1e-21  # of a normal, in deviations; of a sum, in mass
# Width of a cell in standard deviations of the logarithm; the width that a
# heavy tail needs at least; the most cells.
_FINE, _WIDEST, _CELLS = 0.03, 0.03, 4000
# With less noise the ratio leaves the range of floats: one release bounds it.
LEAST_NOISE = 0.1
_ROUNDING = 1e-10  # relative, of a sum of positive numbers


class Law(NamedTuple):
  """A law of positive numbers under Q, on a geometric grid."""

  first: int  # atom i is at exp((first + i) width)
  mass: np.ndarray  # f64[atoms], probabilities under Q, of sum 1
  width: float  # of a cell of the logarithm

  @property
  def exponents(self) -> np.ndarray:
    """Integers: the atoms' logarithms over the width."""
    return self.first + np.arange(len(self.mass))

  @property
  def values(self) -> np.ndarray:
    """The atoms, f64[atoms]."""
    return np.exp(self.exponents * self.width)


@dataclasses.dataclass(frozen=True)
class Epoch:
  """The first steps of an epoch: a step of `step_losses`."""

  kind: str  # 'remove' is (P, Q), 'add' (Q, P)
  noise: float  # multiplier z of a step's releases together, >= LEAST_NOISE
  length: int  # t, steps of an epoch
  steps: int  # s <= t, of them released

  def masses(self, h: float) -> tuple[int, np.ndarray, float]:
    """Return the privacy loss on multiples of h, no delta made smaller.

    The first multiple, masses f64[cells], and the probability of infinity.
    """
    law = ratio(self.noise, self.length, self.steps)
    if law.width >= h:
      law = _refined(law, h)
    else:
      law = _spread(law.exponents * law.width, law.mass, h)
    first, mass = law.first, law.mass * law.values
    if self.kind == 'add':
      first, mass = -int(law.exponents[-1]), law.mass[::-1]
    lost = 10 * _TAIL * self.length + max(0.0, 1 - math.fsum(mass))
    return first, mass * (1 + _ROUNDING), lost

  def log_moments(self, orders: np.ndarray) -> np.ndarray:
    """Return log E[exp(s L)] at each order s, f64[orders]; no bound."""
    law = ratio(self.noise, self.length, self.steps)
    positive = law.mass > 0
    logs = (law.exponents * law.width)[positive]
    log_mass = np.log(law.mass[positive])
    powers = orders + 1 if self.kind == 'remove' else -orders
    return scipy.special.logsumexp(log_mass + powers[:, None] * logs, axis=1)

  def spread(self) -> float:
    """Return a rough standard deviation of the loss."""
    variance = math.expm1(self.noise**-2) * self.steps / self.length**2
    return min(variance**0.5, 1 / self.noise)


@functools.lru_cache(maxsize=64)
def ratio(noise: float, epoch_steps: int, steps: int) -> Law:
  """Return the law of the likelihood ratio Z, spread over a grid."""
  # The width of a cell of its logarithm is a power of two.
  variance = math.expm1(noise**-2) * steps / epoch_steps**2
  widest = max(_WIDEST, _range(noise) / _CELLS)
  wanted = min(_FINE * math.sqrt(variance), widest)
  width = 2.0 ** math.floor(math.log2(wanted))
  if steps == epoch_steps:
    return _sum(noise, steps, width, 1 / epoch_steps)
  # An error of the part's logarithm is smaller by s / t in that of the sum.
  coarse = width * 2 ** int(math.log2(epoch_steps / steps))
  part = _sum(noise, steps, coarse, 1 / epoch_steps)
  rest = (epoch_steps - steps) / epoch_steps
  return _trimmed(_spread(np.log(rest + part.values), part.mass, width))


def _range(noise: float) -> float:
  """Return the length of the interval of ln Y that is not left out."""
  return 2 * _REACH / noise + noise**-2


def _sum(noise: float, count: int, width: float, scale: float) -> Law:
  """Return the law of scale (Y_1 + ... + Y_count), halved again and again."""
  # The spread of one of 2^k parts is averaged over them all: at depth k, cells
  # are 2^(k / 2) times as wide, by whole powers of 2.
  widest = max(width, _WIDEST, _range(noise) / _CELLS)

  @functools.cache
  def at(count: int, depth: int) -> Law:
    here = width * 2 ** min(depth // 2, int(math.log2(widest / width)))
    if count == 1:
      return _trimmed(_log_normal(noise, here, scale))
    less, more = at(count // 2, depth + 1), at(count - count // 2, depth + 1)
    return _trimmed(_added(_refined(less, here), _refined(more, here)))

  whole: Law = at(count, 0)
  return whole


def _log_normal(noise: float, width: float, scale: float) -> Law:
  """Return the law of scale Y; every cell keeps its mass and its mean."""
  middle, shift = -(noise**-2) / 2, math.log(scale)
  low = math.floor((middle + shift - _REACH / noise) / width)
  high = math.ceil((middle + noise**-2 + shift + _REACH / noise) / width)
  edges = np.arange(low, high + 1) * width - shift  # of ln Y
  mass = _cells((edges - middle) * noise)
  mean = _cells((edges - middle - noise**-2) * noise)  # of Y, in each cell
  up = (mean * np.exp(-edges[:-1]) - mass) / math.expm1(width)
  up = np.clip(up, 0, mass)
  return Law(low, np.append(mass - up, 0) + np.append(0, up), width)


def _cells(edges: np.ndarray) -> np.ndarray:
  """Return the normal mass between edges, as exact in both tails."""
  below: np.ndarray = scipy.special.ndtr(edges)
  above: np.ndarray = scipy.special.ndtr(-edges)
  return np.where(edges[:-1] > 0, -np.diff(above), np.diff(below))


def _refined(law: Law, width: float) -> Law:
  """Return the same law on a grid that is finer by a power of 2."""
  times = round(law.width / width)
  mass = np.zeros((len(law.mass) - 1) * times + 1)
  mass[::times] = law.mass
  return Law(law.first * times, mass, width)


def _added(one: Law, other: Law) -> Law:
  """Return the law of a sum of independent numbers, spread over the grid."""
  # The logarithm of a sum of two atoms is that of the larger one, and more by
  # what depends on the difference of their exponents alone.
  first = max(one.first, other.first)
  last = max(law.first + len(law.mass) for law in (one, other))
  total = np.zeros(last - first + int(math.log(2) / one.width) + 2)
  _add_smaller(one, other, 0, first, total)
  _add_smaller(other, one, 1, first, total)
  return Law(first, total, one.width)


def _add_smaller(
  small: Law, large: Law, least: int, first: int, total: np.ndarray
):
  """Add to `total` pairs whose exponents differ by `least` or more."""
  end = large.first + len(large.mass)
  differences = np.arange(least, max(end - small.first, least))
  if not len(differences):
    return
  further = np.log1p(np.exp(-differences * large.width)) / large.width
  cells = further.astype(int)
  upper = np.expm1((further - cells) * large.width) / math.expm1(large.width)
  starts = np.flatnonzero(np.diff(cells, prepend=-1))
  for start, stop in zip(starts, [*starts[1:], len(cells)], strict=True):
    begin = max(small.first + least + start, large.first)
    stop_at = min(small.first + len(small.mass) + least + stop - 1, end)
    if begin >= stop_at:
      continue
    mass = large.mass[begin - large.first : stop_at - large.first]
    part = upper[start:stop]
    for weight, raised in (1 - part, 0), (part, 1):
      # Where `large` is at an exponent, the sum over atoms of `small` below it.
      sums = np.convolve(small.mass, weight)
      offset = begin - small.first - least - start
      place = begin + cells[start] + raised - first
      total[place : place + len(mass)] += mass * sums[offset:][: len(mass)]


def _spread(logs: np.ndarray, mass: np.ndarray, width: float) -> Law:
  """Return the law of numbers with these logarithms, spread over a grid."""
  exponents = np.floor(logs / width).astype(int)
  raised = mass * (np.expm1(logs - exponents * width) / math.expm1(width))
  first = int(exponents.min())
  place = exponents - first
  total = np.bincount(place, mass - raised, minlength=place.max() + 2)
  return Law(first, total + np.bincount(place + 1, raised, len(total)), width)


def _trimmed(law: Law) -> Law:
  """Return the law without what is rare under both P and Q at its ends."""
  # The sum is made 1 again, since every doubling would double what it lacks.
  low = int(np.searchsorted(np.cumsum(law.mass), _TAIL))
  above: np.ndarray = np.cumsum((law.mass * law.values)[::-1])
  rare = np.searchsorted(above, _TAIL * float(above[-1]))
  mass = law.mass[low : len(law.mass) - int(rare)]
  return Law(law.first + low, mass / math.fsum(mass), law.width)
