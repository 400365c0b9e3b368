r"""How well a test can tell whether one unit took part; Gaussian DP.

A test with false-positive rate alpha has a false-negative rate of at least
f(alpha), the trade-off (Dong, Roth and Su, arXiv:1905.02383, Proposition 2.5)::

  f(alpha) = sup_e max(0, 1 - delta(e) - exp(e) alpha,
                       exp(-e) (1 - delta(e) - alpha)),

which any set of epsilons bounds from below. Two unit normals mu apart have
G(alpha) = Phi(Phi^-1(1 - alpha) - mu); f >= G is mu-Gaussian DP.
"""

import math

from fl_sketch.accounting import profiles, tilted_losses, types
from fl_sketch.accounting.types import Mechanism
from fl_sketch.utils import checks
import numpy as np
import numpy.typing as npt
import scipy  # its packages load on first use

FALSE_POSITIVE_RATE = 1e-3  # of a statement's true-positive rate
_POINTS, _FEW = 4096, 256  # epsilons of a curve; where each takes long
_SAFE = 1e-10  # relative, on the safe side of a root


def mu(mechanism: Mechanism, *, delta: float, accountant: str = 'pld') -> float:
  """Return the least mu, rounded up, of Gaussian DP that holds down to `delta`.

  At every epsilon delta(epsilon) <= max(delta of mu at epsilon, `delta`). With
  full participation it is exact: sqrt(steps) / noise_multiplier, and twice that
  under replace-one.

  >>> mu(types.GaussianMechanism(noise_multiplier=2.0, steps=9), delta=1e-5)
  1.5
  """
  delta = checks.fraction('delta', delta)
  profile = profiles.profile(mechanism, accountant)
  full = profiles.full_participation(mechanism)
  bound = math.inf if full is None else full.distance
  if profiles.is_full(mechanism):
    return bound
  last = profile.epsilon(delta)
  if math.isinf(last):
    return bound
  epsilons = _epsilons(profile, last)
  # Between two epsilons delta is at most that of the first.
  deltas = np.maximum(profile.deltas(epsilons), delta)
  return min(bound, float(np.max(_mu_of(epsilons[1:], deltas[:-1]))))


def type_two_error(
  mechanism: Mechanism, alpha: npt.ArrayLike, *, accountant: str = 'pld'
) -> float | np.ndarray:
  """Return a lower bound of the false-negative rate of every test.

  Exact for full participation: Phi(Phi^-1(1 - alpha) - mu); elsewhere from the
  accountant's deltas. Rates alpha in [0, 1] are a number, or f64[alphas].
  """
  alphas = np.atleast_1d(np.asarray(alpha, float))
  if not np.all((alphas >= 0) & (alphas <= 1)):
    raise ValueError(f'alpha={alpha} is no rate; use 0 <= alpha <= 1.')
  profile = profiles.profile(mechanism, accountant)
  full = profiles.full_participation(mechanism)
  errors = np.zeros(len(alphas))
  if full is not None:
    errors = gaussian_trade_off(full.distance, alphas)
  if full is None or not profiles.is_full(mechanism):
    errors = np.maximum(errors, _from_deltas(*_curve(profile), alphas))
  return errors if np.ndim(alpha) else float(errors[0])


def true_positive_rate(
  mechanism: Mechanism,
  false_positive_rate: float = FALSE_POSITIVE_RATE,
  *,
  accountant: str = 'pld',
) -> float:
  """Return the largest true-positive rate of a test at a false-positive rate.

  1 - f(alpha): what a membership-inference attack can reach at most.

  >>> m = types.GaussianMechanism(noise_multiplier=1.0, steps=1)
  >>> round(true_positive_rate(m, 1e-3), 4)
  0.0183
  """
  alpha = checks.fraction('false_positive_rate', false_positive_rate)
  return 1.0 - float(type_two_error(mechanism, alpha, accountant=accountant))


def gaussian_trade_off(distance: float, alphas: np.ndarray) -> np.ndarray:
  """Return G of two unit normals, rounded down; 0 at infinity."""
  if math.isinf(distance):
    return np.zeros(len(alphas))
  shifted = -scipy.special.ndtri(alphas) - distance
  return scipy.special.ndtr(shifted) * (1 - _SAFE)


def _from_deltas(
  epsilons: np.ndarray, deltas: np.ndarray, alphas: np.ndarray
) -> np.ndarray:
  """Return the largest of the lines below a trade-off at each alpha."""
  largest = np.zeros(len(alphas))
  for epsilon, delta in zip(epsilons, deltas, strict=True):
    steep = 1 - delta - math.exp(min(epsilon, 700.0)) * alphas
    flat = math.exp(-epsilon) * (1 - delta - alphas)
    largest = np.maximum(largest, np.maximum(steep, flat))
  return largest


def _curve(profile: profiles.Profile) -> tuple[np.ndarray, np.ndarray]:
  """Return epsilons from 0 to where delta is small, and deltas there."""
  last = 0.0
  for exponent in range(-12, 0):
    try:
      last = profile.epsilon(10.0**exponent)
      break
    except types.UnsupportedAccountingError:  # truncation costs more
      continue
  if math.isinf(last):
    return np.zeros(1), np.ones(1)
  epsilons = _epsilons(profile, last)
  return epsilons, profile.deltas(epsilons)


def _epsilons(profile: profiles.Profile, last: float) -> np.ndarray:
  """Return epsilons of a curve, the last included, closest together at 0."""
  many = isinstance(profile.curve, tilted_losses.Composition)
  points = _POINTS if many else _FEW
  return last * np.linspace(0.0, 1.0, points + 1) ** 1.5


def _mu_of(epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
  """Return the mu with these deltas at these epsilons, rounded up."""
  low, high = np.full(len(deltas), -60.0), np.full(len(deltas), 60.0)
  for _ in range(64):
    middle = (low + high) / 2
    enough = _log_deltas(np.exp(middle), epsilons) >= np.log(deltas)
    low, high = np.where(enough, low, middle), np.where(enough, middle, high)
  return np.exp(high) * (1 + _SAFE)


def _log_deltas(mus: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
  """Return log delta of unit normals at these distances; -inf where it is 0."""
  log_ndtr, shift = scipy.special.log_ndtr, epsilons / mus
  log_p = log_ndtr(mus / 2 - shift)
  ratio = epsilons + log_ndtr(-mus / 2 - shift) - log_p
  with np.errstate(divide='ignore'):
    return log_p + np.log(-np.expm1(np.minimum(ratio, 0.0)))
