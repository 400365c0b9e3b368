r"""Privacy loss of one step of a sampled Gaussian, rounded on the safe side.

A step is a pair (P, Q) of neighbours; its loss is L = log dP/dQ, drawn from P,
and delta(e) = E[(1 - exp(e - L))_+]. `masses` moves L to multiples of h
("connect the dots", Doroshenko et al., arXiv:2207.04380). The mass at or above
(k + 1) h is, plus what rounding could have taken::

  G[k+1] = (delta(k h) - exp(-h) delta((k+1) h)) / (1 - exp(-h)).

Proofs are in docs/concepts/accounting.md.
"""

import dataclasses
import functools
from typing import NamedTuple

from fl_sketch.accounting import allocation
import numpy as np
import scipy  # its packages load on first use

UNIT = 2.0**-53  # relative rounding of a float64
# In deviations: P has mass 1e-19 below, 1e-50 above, which steps add to delta.
_BELOW, _ABOVE = 9.0, 14.8
_SPACING = 6  # nodes of a quadrature in a standard deviation
# Orders s of log E[exp(s L)]: fixed, so that minima grow with each release.
_POSITIVE = 2.0 ** (np.arange(-64, 321) / 8)
ORDERS = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])


@dataclasses.dataclass(frozen=True)
class Pair:
  """Mixtures of normals of one standard deviation, the sensitivity being 1.

  'remove' is (1-q) N(0) + q N(1) against N(0), 'add' the reverse; 'replace' has
  (1-q) N(0) + q N(-1) on the other side.
  """

  kind: str  # 'remove', 'add' or 'replace'
  noise: float  # standard deviation
  q: float  # weight of what is not at 0
  weight: float = 1.0  # where an outcome tells which of several pairs it is


# Pairs, whose weights sum to 1, or the steps of an epoch of random allocation.
Step = tuple[Pair, ...] | allocation.Epoch


class Masses(NamedTuple):
  """Discrete privacy loss of a step."""

  first: int  # losses are (first + j) h
  log_mass: np.ndarray  # of each, f64[cells]
  infinite: float  # a bound of the probability of larger losses


@functools.lru_cache(maxsize=8)
def masses(step: Step, h: float) -> Masses:
  """Return the loss of a step on multiples of h, no delta made smaller."""
  if isinstance(step, allocation.Epoch):
    first, mass, infinite = step.masses(h)
    with np.errstate(divide='ignore'):
      return Masses(first, np.log(mass), infinite)
  ends = np.array([_ends(pair) for pair in step])
  first = int(np.floor(ends[:, 0].min() / h))
  last = int(np.ceil(ends[:, 1].max() / h))
  losses = np.arange(first, last + 2) * h
  above = np.zeros(len(losses))
  infinite = 0.0
  for pair in step:
    weight = pair.weight * (1 + 8 * UNIT)
    p, scaled_q, units = _tails(pair, losses)
    tail = p + scaled_q
    # One multiple further down, where no threshold is at the end of the losses.
    slack = UNIT * units * np.append(tail[:1], tail[:-1])
    delta = p - scaled_q
    fall = delta[:-1] - np.exp(-h) * delta[1:] + slack[:-1] + slack[1:]
    above[1:] += weight * np.clip(fall / -np.expm1(-h), 0, 1)
    infinite += 2 * weight * float((p + slack)[-1])
  above[0] = 1.0
  above = np.minimum(np.maximum.accumulate(above[::-1])[::-1], 1.0)
  mass = above - np.append(above[1:], 0.0)
  with np.errstate(divide='ignore'):
    return Masses(first, np.log(mass), infinite)


@functools.lru_cache(maxsize=64)
def log_moments(step: Step) -> np.ndarray:
  """Return log E[exp(s L)] at each of `ORDERS`, f64[orders]; no bound.

  By the trapezoidal rule, of the loss that `masses` keeps: all but 1e-50 of P.
  """
  if isinstance(step, allocation.Epoch):
    return _of_orders(step.log_moments(ORDERS))
  totals: list[np.ndarray] = []
  for pair in step:
    log_p, loss = _nodes(pair)
    terms = log_p + ORDERS[:, None] * loss + np.log(pair.weight)
    totals.append(scipy.special.logsumexp(terms, axis=1))
  return _of_orders(scipy.special.logsumexp(totals, axis=0))


def _of_orders(total: np.ndarray) -> np.ndarray:
  """Return logarithms of moments as they are at orders >= 0, but rounding."""
  return np.where(ORDERS > 0, np.maximum(total, 0.0), (ORDERS != 0) * total)


def spread(step: Step) -> float:
  """Return a rough standard deviation of the loss of a step."""
  if isinstance(step, allocation.Epoch):
    return step.spread()
  stddevs = [0.0]
  for pair in step:
    moved = 2 if pair.kind == 'replace' else 1
    full = 1 / pair.noise
    variance = np.expm1(min(full**2, 100.0))
    stddevs.append(pair.weight * moved * min(pair.q * variance**0.5, full))
  return max(stddevs)


def _ends(pair: Pair) -> np.ndarray:
  """Return losses with almost no mass of P below, or above."""
  most = 1 / pair.noise  # the mean of the component that is not at 0
  low, high = -_BELOW, _ABOVE + most
  if pair.kind == 'add':  # the loss falls
    low, high = _BELOW, -_ABOVE
  return _loss(pair, np.array([low, high]))


def _loss(pair: Pair, v: np.ndarray) -> np.ndarray:
  """Return log dP/dQ at v standard deviations."""

  def mixture(sign: int) -> np.ndarray:
    with np.errstate(divide='ignore'):
      none, some = np.log1p(-pair.q), np.log(pair.q)
    tilt = (sign * v - 0.5 / pair.noise) / pair.noise
    return np.logaddexp(none, some + tilt)

  if pair.kind == 'replace':
    return mixture(1) - mixture(-1)
  return mixture(1) if pair.kind == 'remove' else -mixture(1)


def _nodes(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
  """Return log weights of P and losses at the nodes of a quadrature."""
  most = _ABOVE + 1 / pair.noise
  v = np.linspace(-_ABOVE, most, int((most + _ABOVE) * _SPACING) + 1)
  normal = np.log((v[1] - v[0]) / (2 * np.pi) ** 0.5) - v**2 / 2
  if pair.kind == 'add':
    return normal, _loss(pair, v)
  remove = _loss(dataclasses.replace(pair, kind='remove'), v)
  return normal + remove, _loss(pair, v)


def _tails(
  pair: Pair, losses: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return P(L > l), exp(l) Q(L > l), and their relative rounding in ulps."""
  z, q, half = pair.noise, pair.q, 0.5 / pair.noise
  # (weight, argument) of the normal tails that P and Q are sums of.
  if pair.kind == 'replace':
    y = _symmetric_threshold(z, q, losses)
    tails_p = [(1 - q, -z * y), (q, 2 * half - z * y)]
    tails_q = [(1 - q, -z * y), (q, -2 * half - z * y)]
  else:
    sign = -1 if pair.kind == 'add' else 1
    y = _threshold(q, sign * losses)
    none, one = -sign * (z * y + half), -sign * (z * y - half)
    tails_p, tails_q = [(1 - q, none), (q, one)], [(1.0, none)]
    if pair.kind == 'add':
      tails_p, tails_q = tails_q, tails_p
  p = furthest = np.zeros(len(losses))
  log_q = np.full(len(losses), -np.inf)
  for weight, at in tails_p:
    p = p + weight * scipy.special.ndtr(at)
    furthest = np.maximum(furthest, -np.maximum(at, -40))
  with np.errstate(divide='ignore'):
    for weight, at in tails_q:
      tail = np.log(weight) + scipy.special.log_ndtr(at)
      log_q = np.logaddexp(log_q, tail)
  size = np.abs(losses) + np.minimum(np.abs(np.nan_to_num(log_q)), 1e3)
  known = np.minimum(np.abs(y), 1e3 + size)
  units = 64 + 8 * size + 16 * known + 4 * furthest**2 + 4 / z**2
  return p, np.exp(losses + log_q), units


def _threshold(q: float, losses: np.ndarray) -> np.ndarray:
  """Return y with 1 - q + q exp(y) = exp(loss); -inf where there is none."""
  if q == 1:
    return losses
  with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
    # Each where it does not cancel.
    near = np.log((np.expm1(losses) + q) / q)
    far = losses + np.log1p(-(1 - q) * np.exp(-losses)) - np.log(q)
  y = far if q >= 0.5 else np.where(losses < 0.5, near, far)
  return np.where(np.isnan(y), -np.inf, y)


def _symmetric_threshold(z: float, q: float, losses: np.ndarray) -> np.ndarray:
  """Return y = x / z^2 at which the loss of 'replace' is `losses`."""
  # y = l / 2 + asinh((1 - q) / q exp(1 / (2 z^2)) sinh(l / 2)), in logarithms.
  half = losses / 2
  if q == 1:
    return half
  with np.errstate(divide='ignore'):
    size = np.abs(half)
    log_sinh = size + np.log(-np.expm1(-2 * size) / 2)
    log_v = np.log1p(-q) - np.log(q) + 0.5 / z**2 + log_sinh
  asinh = np.logaddexp(log_v, 0.5 * np.logaddexp(0.0, 2 * log_v))
  return half + np.sign(half) * asinh
