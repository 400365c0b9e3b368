r"""Lower bounds on privacy from one run: many canaries, each in by a fair coin.

A guesser sees what the run releases, guesses g of m coins and abstains from the
others; R of its guesses are right. Two laws bound R, and so privacy from below.

**f-DP alone.** An event of chance h in one of two neighbouring worlds has at
least the chance :math:`\phi(h)` in the other, :math:`\Phi(\Phi^{-1}(h) - \mu)`
under mu-GDP. Then :math:`P_i = P[R \ge i]` satisfies, for every i::

  phi(E[R; R > i] / m) <= E[g - R; R >= i] / m

  P_i >= (m phi(((i+1) P_{i+1} + sum_{j>i+1} P_j) / m) + sum_{j>i} P_j) / (g-i)

From :math:`P_r = \tau` down the recursion gives the least :math:`P_0`. If it is
above 1, then :math:`P[R \ge r] < \tau`: Mahloujifar, Melis, Chaudhuri,
arXiv:2410.22235, Theorem 3.2 and Algorithm 3. It needs ten thousand canaries.

**Independent guesses.** A guess of one fair coin is right with probability
:math:`(1 + \delta(0)) / 2` at most, :math:`\Phi(\mu / 2)` under mu-GDP. Where
isotropic Gaussian noise meets orthogonal contributions, guesses are independent
given the scores, and R is no larger than a binomial.

Source of the game: Steinke, Nasr, Jagielski, arXiv:2305.08846.
"""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch.accounting import events, hypothesis_tests, profiles, types
from fl_sketch.privacy.auditing import canary_scores
import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

Curve = Callable[[ArrayLike], np.ndarray]  # phi
_ROUNDING = 1e-9  # of the recursion; puts what it rejects on the safe side
_MOST_MU = 64.0
_POINTS = 65  # of a search; four of them refine to 1e-7 of the first interval
_QUIET = 1e-3  # least deviation of noise that a score assumes
EPSILONS = np.concatenate([[0.0], np.geomspace(1e-2, 100, 100)])


class Claim(NamedTuple):
  """The claim of a mechanism about a guesser."""

  mu: float  # of Gaussian DP, down to the delta of a statement
  curve: Curve  # chance of an event in one world -> its least in the other
  accuracy: float  # the largest probability of a right guess of one fair coin


def gaussian_curve(mu: ArrayLike) -> Curve:
  r"""Return :math:`\phi(h) = \Phi(\Phi^{-1}(h) - \mu)`, inf for h above 1."""

  def curve(chance):
    chance = np.asarray(chance, np.float64)
    other = special.ndtr(special.ndtri(np.minimum(chance, 1)) - mu)
    return np.where(chance > 1, np.inf, other)

  return curve


def curve_of(deltas: np.ndarray) -> Curve:
  r"""Return phi of a mechanism whose deltas are at most these at `EPSILONS`.

  :math:`P'(E) \ge e^{-\epsilon} (P(E) - \delta)` and
  :math:`1 - \delta - e^\epsilon (1 - P(E))` at each of them.
  """

  def curve(chance):
    chance = np.asarray(chance, np.float64)
    h = chance[..., None]
    high = 1 - deltas - np.exp(EPSILONS) * (1 - h)
    other = np.maximum(np.exp(-EPSILONS) * (h - deltas), high).max(-1)
    return np.where(chance > 1, np.inf, np.maximum(other, 0))

  return curve


def claim_of(
  mechanism: types.Mechanism, *, delta: float, accountant: str = 'pld'
) -> Claim:
  """Return what a mechanism allows a guesser; mu holds down to delta."""
  mu = hypothesis_tests.mu(mechanism, delta=delta, accountant=accountant)
  if profiles.is_full(mechanism):
    return Claim(mu, gaussian_curve(mu), float(special.ndtr(mu / 2)))
  deltas = profiles.profile(mechanism, accountant).deltas(EPSILONS)
  return Claim(mu, curve_of(deltas), (1 + float(deltas[0])) / 2)


def refuted(
  chance: float, right: int, guesses: int, canaries: int, curve: Curve
) -> np.ndarray:
  """Return whether P[R >= right] is below `chance` by f-DP alone: bool[...].

  Counts are right <= guesses <= canaries. How many coins are guessed must not
  depend on the run. The shape is that of the results of `curve`.

  >>> curve = gaussian_curve(1.0)  # under which one guess is right by 0.6915
  >>> bool(refuted(0.691, 1, 1, 1, curve)), bool(refuted(0.692, 1, 1, 1, curve))
  (False, True)
  """
  upper, above = np.asarray(chance, np.float64), np.float64(0)
  for i in range(right - 1, -1, -1):
    hit = ((i + 1) * upper + above) / canaries
    above = above + upper
    upper = np.maximum(upper, (canaries * curve(hit) + above) / (guesses - i))
  return np.asarray(upper > 1 + _ROUNDING)


def least_mu(
  right: int, guesses: int, canaries: int, significance: float
) -> float:
  """Bound mu from below by f-DP alone: the largest mu that is refuted.

  It is above the true mu with probability `significance` at most, for any
  guesser. Counts are as of `refuted`.
  """

  def is_refuted(mu):
    curve = gaussian_curve(mu)
    return refuted(significance, right, guesses, canaries, curve)

  low, high = 0.0, _MOST_MU
  if not is_refuted(low):
    return low
  for _ in range(4):
    points = np.linspace(low, high, _POINTS)
    first = int(np.argmin(is_refuted(points)))  # that is not
    low, high = float(points[first - 1]), float(points[first])
  return low


def independent_chance(right: int, guesses: int, accuracy: float) -> float:
  """Return P[R >= right] for R ~ Binomial(guesses, accuracy)."""
  return float(stats.binom.sf(right - 1, guesses, accuracy))


def independent_mu(right: int, guesses: int, significance: float) -> float:
  """Bound mu from below for independent guesses, of all coins.

  If no guess is right, given all others, with more probability than mu allows,
  it is above mu with probability `significance` at most.
  """
  if not right:
    return 0.0
  low = stats.beta.ppf(significance, right, guesses - right + 1)
  return max(0.0, 2 * float(special.ndtri(low)))


def log_ratio(
  along: np.ndarray, mechanism: types.GaussianMechanism
) -> np.ndarray:
  """Return log-likelihood ratios of being in to being out, f64[canaries].

  `along`, f[rounds, canaries], are releases along each canary's contribution,
  in units of it, NaN where it has none. The deviation of the noise is estimated
  by the median, since a score for much noise is biased where there is little.
  """
  along = np.asarray(along, np.float64)
  spread = np.nanmedian(np.abs(along - np.nanmedian(along)))
  variance = max(spread / special.ndtri(0.75), _QUIET) ** 2
  q = events.probability_of(mechanism)
  return np.nansum(canary_scores.log_ratio(along, mechanism, variance, q), 0)


def sure_right(scores: np.ndarray, coins: np.ndarray, guesses: int) -> int:
  """Count right guesses of the highest and the lowest scores, half each.

  >>> sure_right(np.array([3.0, 0.0, -1.0]), np.array([1, 1, 0]) == 1, 2)
  2
  """
  order, out = np.argsort(scores, kind='stable'), guesses // 2
  high = order[len(order) - (guesses - out) :]
  return int(coins[high].sum() + (~coins[order[:out]]).sum())


def all_right(scores: np.ndarray, coins: np.ndarray) -> int:
  """Count right guesses of all coins: in where a score is above 0."""
  return int(((scores > 0) == coins).sum())
