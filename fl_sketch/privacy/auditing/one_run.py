r"""Lower bounds on privacy from one run: many canaries, each in by a fair coin.

A guesser sees what the run releases, guesses g of m coins and abstains from the
others; R of its guesses are right. Two laws bound R, and so privacy from below.

**f-DP alone.** An event of chance h in one of two neighbouring worlds has at
least the chance :math:`\phi(h)` in the other, :math:`\Phi(\Phi^{-1}(h) - \mu)`
under mu-GDP. Then :math:`P_i = P[R \ge i]` satisfies, for every i::

  phi(E[R; R > i] / m) <= E[g - R; R >= i] / m

  P_i >= (m phi(((i+1) P_{i+1} + sum_{j>i+1} P_j) / m) + sum_{j>i} P_j) / (g-i)

From :math:`P_r = \tau` down the recursion gives the least :math:`P_0`. If it is
above 1, then :math:`P[R \ge r] < \tau`. A mechanism that fails seldom, but for
all canaries at once, attains the law where all guesses are right: so the test
needs ten thousand canaries. Mahloujifar, Melis, Chaudhuri, arXiv:2410.22235,
Theorem 3.2 and Algorithm 3.

**Independent guesses.** A guess of one fair coin is right with probability
:math:`(1 + \delta(0)) / 2` at most, :math:`\Phi(\mu / 2)` under mu-GDP. Where
isotropic Gaussian noise meets orthogonal contributions, guesses are independent
given the scores, and R is no larger than a binomial.

Source of the game: Steinke, Nasr, Jagielski, arXiv:2305.08846.
"""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch.privacy.accounting import hypothesis_tests, profiles, types
from fl_sketch.utils import checks, search
import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

Curve = Callable[[ArrayLike], np.ndarray]  # phi
_ROUNDING = 1e-9  # of the recursion; puts what it rejects on the safe side
_MOST_MU = 64.0
_RAREST = 1e-15  # chances below it are given as this
_POINTS = 65  # of a search; four of them refine to 1e-7 of the first interval
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
  """Return what a claimed mechanism allows a guesser; mu holds down to delta.

  Raises UnsupportedAccountingError without a valid analysis.
  """
  mu = hypothesis_tests.mu(mechanism, delta=delta, accountant=accountant)
  if profiles.is_full(mechanism):
    return Claim(mu, gaussian_curve(mu), float(special.ndtr(mu / 2)))
  deltas = profiles.profile(mechanism, accountant).deltas(EPSILONS)
  return Claim(mu, curve_of(deltas), (1 + float(deltas[0])) / 2)


def chance(right: int, guesses: int, canaries: int, curve: Curve) -> float:
  """Bound P[R >= right] from above by f-DP alone; 1e-15 at least.

  How many coins are guessed must not depend on the run. Raises ValueError
  unless right <= guesses <= canaries.

  >>> round(chance(1, 1, 1, gaussian_curve(1.0)), 4)  # Phi(1 / 2)
  0.6915
  """
  _check(right, guesses, canaries)

  def possible(log_tails):
    tails = np.exp(log_tails)
    return ~_rejected(tails, right, guesses, canaries, curve)

  low, high = np.log(_RAREST), 0.0
  if not right or possible(high):
    return 1.0
  if not possible(low):
    return _RAREST
  return float(np.exp(_last(possible, low, high)[1]))


def least_mu(
  right: int, guesses: int, canaries: int, significance: float
) -> float:
  """Bound mu from below by f-DP alone: the largest mu that is rejected.

  For any mu-GDP mechanism and any guesser it is above mu with probability
  `significance` at most. Counts, and their ValueError, as of `chance`.

  >>> round(least_mu(250, 250, 1000, 1e-3), 2), least_mu(125, 250, 1000, 1e-3)
  (1.13, 0.0)
  """
  _check(right, guesses, canaries)
  tail = checks.fraction('significance', significance)

  def refuted(mu):
    return _rejected(tail, right, guesses, canaries, gaussian_curve(mu))

  return _last(refuted, 0.0, _MOST_MU)[0] if refuted(0.0) else 0.0


def least_right(
  guesses: int, canaries: int, curve: Curve, significance: float
) -> int:
  """Return the fewest right guesses that refute a claim by f-DP alone.

  Returns guesses + 1 if no number of right guesses does.
  """
  tail = checks.fraction('significance', significance)
  refuted = lambda right: bool(_rejected(tail, right, guesses, canaries, curve))
  return search.least(refuted, 1, guesses + 1)


def independent_chance(right: int, guesses: int, accuracy: float) -> float:
  """Return P[R >= right] for R ~ Binomial(guesses, accuracy)."""
  _check(right, guesses, guesses)
  return float(stats.binom.sf(right - 1, guesses, accuracy))


def independent_mu(right: int, guesses: int, significance: float) -> float:
  """Bound mu from below for independent guesses, of all coins.

  If no guess is right, given all others, with more probability than mu allows,
  it is above mu with probability `significance` at most.

  >>> round(independent_mu(460, 500, 1e-3), 2)
  2.31
  """
  _check(right, guesses, guesses)
  checks.fraction('significance', significance)
  if not right:
    return 0.0
  low = stats.beta.ppf(significance, right, guesses - right + 1)
  return max(0.0, 2 * float(special.ndtri(low)))


def _rejected(
  tail: ArrayLike, right: int, guesses: int, canaries: int, curve: Curve
) -> np.ndarray:
  """Return whether no law of R has the chance `tail` of `right` or more."""
  upper, above = np.asarray(tail, np.float64), np.float64(0)
  for i in range(right - 1, -1, -1):
    hit = ((i + 1) * upper + above) / canaries
    above = above + upper
    upper = np.maximum(upper, (canaries * curve(hit) + above) / (guesses - i))
  return np.asarray(upper > 1 + _ROUNDING)


def _last(holds, low: float, high: float) -> tuple[float, float]:
  """Narrow the end of an interval in which a condition holds from `low` on."""
  for _ in range(4):
    points = np.linspace(low, high, _POINTS)
    where = int(np.argmin(holds(points)))  # the first at which it fails
    low, high = float(points[where - 1]), float(points[where])
  return low, high


def _check(right: int, guesses: int, canaries: int) -> None:
  checks.count('guesses', guesses)
  if not 0 <= right <= guesses <= canaries:
    raise ValueError(
      f'Use 0 <= right <= guesses <= canaries; got {right=}, {guesses=}, '
      f'{canaries=}.'
    )
