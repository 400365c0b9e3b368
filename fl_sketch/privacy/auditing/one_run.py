r"""Lower bounds on privacy from one run: many canaries, each in by a fair coin.

m canaries take part or not by coins that the guesser does not see. From what
the run releases it guesses g of the coins and abstains from the others; R of
the g guesses are right. Two laws bound R, and so the privacy from below.

**f-DP alone.** If every canary is protected by a trade-off curve, an event of
chance h in one of two neighbouring worlds has at least the chance
:math:`\phi(h)` in the other (:math:`\Phi(\Phi^{-1}(h) - \mu)` under mu-GDP).
Turn the coin of canary j over: the event that its guess is right, and more
than i guesses are, becomes the event that it is wrong, and i or more of the
others are right. Averaged over j, since :math:`\phi` is convex, with
:math:`P_i = P[R \ge i]`, for every i::

  phi(E[R; R > i] / m) <= E[g - R; R >= i] / m

  P_i >= (m phi(((i+1) P_{i+1} + sum_{j>i+1} P_j) / m) + sum_{j>i} P_j) / (g-i)

The right side grows with every :math:`P_j`, so that the recursion from
:math:`P_r = \tau` down gives the least :math:`P_0`. If that is above 1, then
:math:`P[R \ge r] < \tau`: a test of significance :math:`\tau`. Where all
guesses are right its law is attained, by a mechanism that fails seldom, but
then for all canaries at once. No test of R that supposes f-DP alone can exclude
that, so that with a thousand canaries it sees gross faults alone. Mahloujifar,
Melis, Chaudhuri, arXiv:2410.22235, Theorem 3.2 and Algorithm 3.

**Independent guesses.** A guess of one fair coin is right with probability
:math:`(1 + \delta(0)) / 2` at most, :math:`\Phi(\mu / 2)` under mu-GDP. If
scores and coins of the canaries are independent of one another, as they are
where isotropic Gaussian noise meets orthogonal contributions, then so are the
guesses given the scores, and R is no larger than a binomial. This supposes more
than f-DP does, and has power with 500 canaries.

Source of the game: Steinke, Nasr, Jagielski, arXiv:2305.08846.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.privacy.accounting import hypothesis_tests, profiles, types
from fl_sketch.utils import checks, search
import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

Curve = Callable[[Any], np.ndarray]  # phi
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
  r"""Returns :math:`\phi(h) = \Phi(\Phi^{-1}(h) - \mu)`, inf for h above 1.

  >>> float(gaussian_curve(0.0)(0.25))
  0.25
  """

  def curve(chance):
    chance = np.asarray(chance, np.float64)
    other = special.ndtr(special.ndtri(np.minimum(chance, 1)) - mu)
    return np.where(chance > 1, np.inf, other)

  return curve


def curve_of(deltas: np.ndarray) -> Curve:
  r"""Returns phi of a mechanism whose deltas are at most these at `EPSILONS`.

  :math:`P'(E) \ge e^{-\epsilon} (P(E) - \delta)` and
  :math:`1 - \delta - e^\epsilon (1 - P(E))` at each of them.

  >>> float(curve_of(np.zeros(len(EPSILONS)))(0.25))
  0.25
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
  """Returns what a claimed mechanism allows a guesser; mu holds down to delta.

  Without a valid analysis it raises UnsupportedAccountingError.
  """
  mu = hypothesis_tests.mu(mechanism, delta=delta, accountant=accountant)
  if profiles.is_full(mechanism):
    return Claim(mu, gaussian_curve(mu), float(special.ndtr(mu / 2)))
  deltas = profiles.profile(mechanism, accountant).deltas(EPSILONS)
  return Claim(mu, curve_of(deltas), (1 + float(deltas[0])) / 2)


def chance(right: int, guesses: int, canaries: int, curve: Curve) -> float:
  """Bounds the probability of so many right guesses, by f-DP alone.

  An upper bound of P[R >= right], 1e-15 at least. The number of guesses must
  not depend on the run; canaries are all coins. Raises ValueError unless right
  <= guesses <= canaries.

  >>> round(chance(1, 1, 1, gaussian_curve(1.0)), 4)  # Phi(1 / 2)
  0.6915
  """
  _check(right, guesses, canaries)
  if not right:
    return 1.0
  possible = lambda tails: ~_rejected(tails, right, guesses, canaries, curve)
  if possible(np.array(1.0)):
    return 1.0
  if not possible(np.array(_RAREST)):
    return _RAREST
  low, high = np.log(_RAREST), 0.0
  return float(np.exp(_last(lambda x: possible(np.exp(x)), low, high)[1]))


def least_mu(
  right: int, guesses: int, canaries: int, significance: float
) -> float:
  """Bounds mu from below by f-DP alone: the largest mu that is rejected.

  Counts, and their ValueError, as of `chance`; the significance is in (0, 1).

  >>> round(least_mu(250, 250, 1000, 1e-3), 2), least_mu(125, 250, 1000, 1e-3)
  (1.13, 0.0)

  Guarantees:
    Validity: for any mu-GDP mechanism and any guesser, above mu with
    probability ``significance`` at most.
  """
  _check(right, guesses, canaries)
  tail = np.array(checks.fraction('significance', significance))
  counts = right, guesses, canaries
  refuted = lambda mu: _rejected(tail, *counts, gaussian_curve(mu))
  return _last(refuted, 0.0, _MOST_MU)[0] if refuted(np.zeros(1)) else 0.0


def least_right(
  guesses: int, canaries: int, curve: Curve, significance: float
) -> int:
  """Returns the fewest right guesses that refute a claim by f-DP alone.

  It is guesses + 1 if not even right guesses alone do.

  >>> least_right(250, 1000, gaussian_curve(1.0), 1e-3)
  249
  """
  tail = np.array(checks.fraction('significance', significance))
  refuted = lambda right: bool(_rejected(tail, right, guesses, canaries, curve))
  return search.least(refuted, 1, guesses + 1)


def independent_chance(right: int, guesses: int, accuracy: float) -> float:
  """Returns the probability of so many right guesses of this accuracy at most.

  >>> independent_chance(2, 2, 0.5)
  0.25
  """
  _check(right, guesses, guesses)
  return float(stats.binom.sf(right - 1, guesses, accuracy))


def independent_mu(right: int, guesses: int, significance: float) -> float:
  """Bounds mu from below if each guess is right or wrong by itself.

  No coin is abstained from by its score.

  >>> round(independent_mu(460, 500, 1e-3), 2)
  2.31

  Guarantees:
    Validity: if given all others no guess is right with more probability than
    mu allows, above mu with probability ``significance`` at most.
  """
  _check(right, guesses, guesses)
  checks.fraction('significance', significance)
  if not right:
    return 0.0
  low = stats.beta.ppf(significance, right, guesses - right + 1)
  return max(0.0, 2 * float(special.ndtri(low)))


def _rejected(tail, right, guesses, canaries, curve) -> np.ndarray:
  """Whether no law has the chance `tail` of so many right guesses."""
  upper, above = np.asarray(tail, np.float64), np.float64(0)
  for i in range(right - 1, -1, -1):
    hit = ((i + 1) * upper + above) / canaries
    above = above + upper
    upper = np.maximum(upper, (canaries * curve(hit) + above) / (guesses - i))
  return np.asarray(upper > 1 + _ROUNDING)


def _last(holds, low: float, high: float) -> tuple[float, float]:
  """Narrows the end of an interval in which a condition holds from below."""
  for _ in range(4):
    points = np.linspace(low, high, _POINTS)
    where = int(np.argmin(holds(points)))  # the first at which it fails
    low, high = float(points[where - 1]), float(points[where])
  return low, high


def _check(right: int, guesses: int, canaries: int) -> None:
  checks.count('guesses', guesses)
  if not 0 <= right <= guesses <= canaries:
    raise ValueError(
      f'{right=} right guesses of {guesses=} of {canaries=} canaries cannot '
      'be; use 0 <= right <= guesses <= canaries.'
    )
