r"""Delta and epsilon of a composition, by tilted Fourier transforms.

With masses g_i of each loss on multiples of h (`step_losses.masses`)::

  p_i(l) = g_i(l) exp(s l - c_i),   c_i = log sum_l g_i(l) exp(s l),
  delta(e) = sum_{l > e} (1 - exp(e - l)) exp(c - s l) p(l),   c = sum_i c_i,

p being the convolution of all p_i. With s near the order at which Chernoff's
bound c - s e is least, rounding is relative to the tail that delta is made of,
at any delta and number of steps. Bounds of all rounding are added; their proofs
are in docs/concepts/accounting.md.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

from fl_sketch.accounting import step_losses
from fl_sketch.accounting.step_losses import ORDERS, UNIT
import numpy as np
import scipy  # its packages load on first use

Steps = tuple[tuple[step_losses.Step, int], ...]
# Frequencies below exp(-_DEAD) do not count, nor tilted mass below exp(-_TAIL).
_DEAD, _TAIL = 80.0, 26.0
_MOST_CELLS = 2**24
# A tilt is good if its Chernoff bound is at most this many times the least.
_GOOD = 1.03, 1.1, 1.4
_REACH = 600.0  # exponents that are safe from overflow
_SAFE = 1e-12  # relative, for the few operations that end a bound
_RUNG = 12.0  # between the log deltas of tilts for many epsilons
_POSITIVE = slice(len(ORDERS) // 2 + 1, None)


def chernoff(delta: float, steps: Steps) -> tuple[float, float]:
  """Return a loose upper bound of epsilon at `delta`, and the order it is of.

  By moments of the privacy loss; a further step never lowers it.
  """
  bounds = (_log_moments(steps) - np.log(delta))[_POSITIVE] / ORDERS[_POSITIVE]
  best = int(np.argmin(bounds))
  return float(bounds[best]), float(ORDERS[_POSITIVE][best])


@dataclasses.dataclass(frozen=True)
class Composition:
  """The curve of a composition: the larger delta of both orders."""

  orders: tuple[Steps, ...]  # of each order, steps and how often each is made
  h: float  # width of a cell of the privacy loss

  def epsilon(self, delta: float) -> float:
    """Return an upper bound of the least epsilon >= 0 at `delta`."""
    tilts = (_tilt(steps, self.h, delta) for steps in self.orders)
    return max(tilt.epsilon(delta) for tilt in tilts)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return an upper bound of delta at each epsilon, f64[epsilons]."""
    deltas = np.zeros(len(epsilons))
    for steps in self.orders:
      low = _chernoff_delta(steps, float(epsilons.max()))
      high = _chernoff_delta(steps, float(epsilons.min()))
      # A tilt is accurate near its own delta.
      rungs = 1 + math.ceil(math.log(high / low) / _RUNG)
      targets = np.geomspace(low, high, rungs) if rungs > 1 else [low]
      best = np.ones(len(epsilons))
      for target in targets:
        best = np.minimum(best, _tilt(steps, self.h, target).deltas(epsilons))
      deltas = np.maximum(deltas, best)
    return deltas


class Tilted(NamedTuple):
  """Delta of a composition, at and above some loss.

  For e in [l_(k-1), l_k), with x = e - centre::

    delta(e) <= upper[k] - exp(x) lower[k] + rounding[k] + rest.
  """

  first: int  # l_k = (first + k) h
  h: float  # width of a cell
  centre: float  # a loss in the window
  upper: np.ndarray  # sums of masses from each cell on, f64[cells]
  lower: np.ndarray  # the same, each times exp(centre - l)
  rounding: np.ndarray  # bounds of it, f64[cells], falling
  rest: float  # what is not in a cell

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return bounds of delta, f64[epsilons]; 1 below the window."""
    cell = np.floor(epsilons / self.h).astype(int) + 1 - self.first
    end = len(self.upper)
    at = np.clip(cell, 0, end - 1)
    x = np.clip(epsilons - self.centre, None, _REACH)
    bounds = self.upper[at] - np.exp(x) * self.lower[at] + self.rounding[at]
    bounds = np.where(cell < end, np.maximum(bounds, 0), 0) + self.rest
    return np.where(cell < 0, 1.0, np.minimum(bounds, 1.0))

  def epsilon(self, delta: float) -> float:
    """Return the least epsilon >= 0 whose bound is `delta`, or inf."""
    room = delta - self.rest
    losses = (self.first + np.arange(len(self.upper))) * self.h - self.centre
    falls = np.exp(np.minimum(losses, _REACH)) * self.lower
    (fits,) = np.nonzero(self.upper - falls + self.rounding <= room)
    if not fits.size:
      return np.inf
    k = fits[0]  # the cell that ends at l_k
    excess, low = self.upper[k] + self.rounding[k] - room, losses[k] - self.h
    x = low
    if excess > 0 and self.lower[k] > 0:
      x = np.clip(np.log(excess / self.lower[k]), low, losses[k])
    elif excess > 0:
      x = losses[k]
    epsilon = float(x + self.centre)
    return max(0.0, epsilon + _SAFE * (abs(epsilon) + self.h))


def _log_moments(steps: Steps) -> np.ndarray:
  """Return log E[exp(s L)] of the composition, roughly, f64[orders]."""
  return np.sum([n * step_losses.log_moments(x) for x, n in steps], axis=0)


def _chernoff_delta(steps: Steps, epsilon: float) -> float:
  """Return a rough upper bound of delta, at least 1e-40."""
  exponent = np.min((_log_moments(steps) - ORDERS * epsilon)[_POSITIVE])
  return float(np.exp(np.clip(exponent, np.log(1e-40), np.log(0.9))))


def _tilt(steps: Steps, h: float, delta: float) -> Tilted:
  """Return delta of a composition near where it is `delta`."""
  s, beyond, first, cells = _window(steps, h, delta)
  parts = [(step_losses.masses(step, h), n) for step, n in steps]
  tilted = [_tilted(mass, s, h, n) for mass, n in parts]
  lowest = sum(n * mass.first for mass, n in parts)
  x, error = _convolve([pair for pair, _ in tilted], first - lowest, cells)
  log_scale = sum(scale for _, scale in tilted)
  log_above = sum(n * _log_moment(mass, beyond, h) for mass, n in parts)
  log_above -= beyond * (first + cells - 1) * h
  log_above += 2**12 * UNIT * sum(n for _, n in parts)  # its own rounding
  rest = sum(n * mass.infinite for mass, n in parts)
  rest = (rest + np.exp(min(log_above, 0.0))) * (1 + _SAFE)
  return _sums(x, error, log_scale, s, first, h, rest)


def _window(
  steps: Steps, h: float, delta: float
) -> tuple[float, float, int, int]:
  """Return a tilt, an order beyond it, the first cell and their number."""
  # Larger tilts change too much from cell to cell.
  usable = ORDERS <= 2 / h
  moments, orders = _log_moments(steps)[usable], ORDERS[usable]
  least = orders > 0
  least[orders > 1 / h] = False
  epsilons = np.where(least, moments - np.log(delta), np.inf)
  epsilons[least] /= orders[least]

  def window(at: int) -> tuple[int, float, float, int]:
    # Chernoff's bounds of tilted masses below the window, and above.
    apart, grows = orders[at] - orders, moments[at] - moments
    bottom = np.max((grows[:at] - _TAIL) / apart[:at])
    tops = (grows[at + 1 :] - _TAIL) / apart[at + 1 :]
    beyond = orders[at + 1 + int(np.argmin(tops))]
    # Rounding to cells may move mass up by this many cells.
    shift = sum(n for _, n in steps) * min(1.0, (beyond + 1) * h / 4)
    first = int(np.floor(min(bottom, epsilons[at]) / h)) - 1
    needed = int(np.ceil(np.min(tops) / h + shift)) + 2 - first
    return needed, float(orders[at]), float(beyond), first

  # The least good tilt: beyond it moments may rise steeply, and the window is
  # long. With rare losses it is long even there.
  tilts = [np.argmax(epsilons <= good * epsilons.min()) for good in _GOOD]
  windows = [window(int(at)) for at in tilts]
  short = (x for x in windows if x[0] <= _MOST_CELLS / 2)
  needed, tilt, beyond, first = next(short, windows[-1])
  cells = 2 ** int(np.ceil(np.log2(max(needed, 2))))
  return tilt, beyond, first, min(cells, _MOST_CELLS)


def _tilted(
  mass: step_losses.Masses, s: float, h: float, n: int
) -> tuple[tuple[np.ndarray, int], float]:
  """Return (p, n) of a step made n times, and n (c + r), r of rounding."""
  losses = (mass.first + np.arange(len(mass.log_mass))) * h
  exponents = mass.log_mass + s * losses
  c = float(scipy.special.logsumexp(exponents))
  finite = np.isfinite(exponents)
  sizes = np.abs(mass.log_mass[finite]) + 4 * s * np.abs(losses[finite])
  relative = UNIT * float(16 + np.max(sizes) + 4 * abs(c))
  # Subnormal numbers are slow; what they add is far below g.
  p = np.where(exponents - c > -_REACH, np.exp(exponents - c), 0.0)
  return (p, n), n * c + n * relative


def _log_moment(mass: step_losses.Masses, s: float, h: float) -> float:
  losses = (mass.first + np.arange(len(mass.log_mass))) * h
  return float(scipy.special.logsumexp(mass.log_mass + s * losses))


def _convolve(
  parts: Sequence[tuple[np.ndarray, int]], shift: int, cells: int
) -> tuple[np.ndarray, float]:
  """Return the convolution from `shift` on, and a bound of its error."""
  known = 16 * UNIT * np.log2(cells)
  spectra = [(_spectrum(p, cells), n) for p, n in parts]
  log_size = np.sum([n * np.log(np.abs(f) + known) for f, n in spectra], axis=0)
  live = log_size > -_DEAD
  errors, product = np.zeros(len(log_size)), np.ones(live.sum(), complex)
  for f, n in spectra:
    product *= _power(f[live], n)
    errors += n * (known / (np.abs(f) + known) + 4 * UNIT)
  errors = np.exp(log_size) * np.where(live, errors, 1.0)
  total = np.zeros(len(log_size), complex)
  total[live] = product
  x = scipy.fft.irfft(total, cells)
  twice = np.full(len(errors), 2.0)  # conjugates; the ends have none
  twice[[0, -1]] = 1.0
  error = np.sqrt(np.sum(twice * errors**2) / cells)
  error += 2 * known * np.sqrt(np.sum(x**2))
  return np.maximum(np.roll(x, -shift % cells), 0), float(error)


def _spectrum(p: np.ndarray, cells: int) -> np.ndarray:
  """Return the Fourier transform of masses that wrap around a circle."""
  rows = -(-len(p) // cells)
  folded = np.zeros(rows * cells)
  folded[: len(p)] = p
  return scipy.fft.rfft(folded.reshape(rows, cells).sum(0))


def _power(base: np.ndarray, n: int) -> np.ndarray:
  """Return base^n by squaring, whose rounding is known."""
  result = np.ones_like(base)
  while n:
    if n & 1:
      result = result * base
    n >>= 1
    if n:
      base = base * base
  return result


def _sums(
  x: np.ndarray, error: float, log_scale: float, s: float, first: int,
  h: float, rest: float
) -> Tilted:  # fmt: skip
  """Return what delta is made of, from tilted masses of the composition."""
  losses = (first + np.arange(len(x))) * h
  peak = losses[np.argmax(x)]
  in_reach = losses - peak > -_REACH / (s + 1)
  first += int(np.argmax(in_reach))
  x, losses = x[in_reach], losses[in_reach] - peak
  exponents = log_scale - s * peak - s * losses
  # Subnormal numbers are slow: rounded up, or to 0 where that is safe.
  weights = np.exp(np.maximum(exponents, -_REACH))
  helps = np.where(exponents - losses > -_REACH, exponents - losses, -np.inf)
  blur = 4 * len(x) * UNIT + _SAFE
  upper = np.cumsum((x * weights)[::-1])[::-1] * (1 + blur)
  lower = np.cumsum((x * np.exp(helps))[::-1])[::-1] * (1 - blur)
  cells = min(len(x), -1 / np.expm1(-2 * s * h))
  rounding = weights * (error * np.sqrt(cells) * (1 + _SAFE))
  return Tilted(first, h, float(peak), upper, lower, rounding, float(rest))
