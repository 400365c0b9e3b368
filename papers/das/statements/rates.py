"""Das et al.: convergence of private averaging by clipping or normalising.

Das, Hashemi, Sanghavi and Dhillon, arXiv:2106.07094, Algorithms 1 and 2 on
convex L-smooth f_i: clip is their C^ = C / E, rho as of `privacy_bounds`, gaps
the Delta_i* of `lemmas.heterogeneity_gaps`. A round is
w - eta (mean g_i + z), with E|z|^2 = rounds (clip_norm rho)^2. Bounds are on
expectations, also over a uniformly drawn round. A Poisson cohort adds the
variance `cohort_variance` times the mean of |g_i|^2.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks
import numpy as np
import numpy.typing as npt

from ...common import conditions
from ...common.conditions import Count, Form, Fraction, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement


class Schedule(NamedTuple):
  """The parameters that the rates take; made and checked by `schedule`.

  The clip is of a local step, rho that of `privacy_bounds.das_rho`, gamma any
  positive number, best L |w_0 - w*|. cohort_variance is of Poisson cohorts of
  an expected size r, else 0.
  """

  smoothness: Positive
  clip: Positive
  rho: Fraction
  local_steps: Count
  rounds: Count
  gamma: Positive
  cohort_variance: conditions.Part = 0.0

  @property
  def alpha(self) -> float:
    """K rho^2 C^ E / (2 gamma); the theorems have K by alpha."""
    scale = self.clip * self.local_steps / (2 * self.gamma)
    return self.rounds * self.rho**2 * scale

  @property
  def client_lr(self) -> float:
    """Eta = gamma / (C^ L E K rho) = rho / (2 alpha L), and the server's."""
    return self.rho / (2 * self.alpha * self.smoothness)

  @property
  def clip_norm(self) -> float:
    """C = E C^, the bound of u_i = (w - w_i) / eta."""
    return self.local_steps * self.clip

  @property
  def load(self) -> float:
    """The x of the rates: rho E / alpha = 2 eta L E."""
    return self.rho * self.local_steps / self.alpha

  def noise_stddev(self, dimension: int) -> float:
    """Noise on every coordinate of a round's mean: C rho sqrt(K / d)."""
    dimension = checks.count('dimension', dimension)
    return self.clip_norm * self.rho * math.sqrt(self.rounds / dimension)


@formula
def schedule(
  *,
  smoothness: Positive,
  clip: Positive,
  rho: Fraction,
  local_steps: Count,
  rounds: Count,
  gamma: Positive,
  largest_gap: NonNegative,
  cohort_variance: conditions.Part = 0.0,
) -> Schedule:
  """Return the `Schedule` of Theorems 2 and 4, in their general form.

  Requires E <= alpha / (2 rho), that is K >= 4 gamma / (C^ rho), and C^ >= 4
  sqrt(L largest_gap), which is max Delta_i*, or 0 where nothing is clipped.

  >>> spec = {'clip': 4.0, 'rho': 0.1, 'local_steps': 5, 'gamma': 1.0}
  >>> s = schedule(smoothness=1.0, rounds=10, largest_gap=1.0, **spec)
  >>> round(s.alpha, 6), round(s.client_lr, 6)
  (1.0, 0.05)
  """
  numbers = smoothness, clip, rho, local_steps, rounds, gamma
  s = Schedule(*numbers, cohort_variance)
  if s.load > 0.5 * (1 + 1e-9):
    raise ValueError(f'{rounds=} must be >= {4 * gamma / (clip * rho)}.')
  checks.at_least('clip', clip, 4 * math.sqrt(smoothness * largest_gap))
  return s


@formula
def right(s: Schedule, distance: NonNegative) -> float:
  """Return C^ (L |w_0 - w*|^2 / gamma + gamma / L) rho.

  >>> right(Schedule(1.0, 4.0, 0.125, 4, 16, 2.0), distance=2.0)
  2.0
  """
  gamma = s.gamma / s.smoothness
  return s.clip * (distance**2 / gamma + gamma) * s.rho


@statement('S1-Thm2', 'Theorems 2 and 5', printed='holds')
def clip_left(
  s: Schedule, excess: npt.ArrayLike, norms: npt.ArrayLike, gaps: npt.ArrayLike
) -> npt.NDArray:
  r"""Return the quantity that clipping keeps below `right`.

  The mean over the clients of

  .. math:: (2 - x - x^2)(f_i(w) - f_i(w^*)) - \tfrac32 x \Delta_i^*
     \text{ or } \tfrac{3 \hat C}{8 L E} \|u_i\|,

  the latter where an update is longer than C; x is rho E / alpha. The paper has
  the gaps on the other side. Excess (before a round) and norms (of its updates)
  are [..., clients], gaps [clients].

  Equation (23) of the proof needs a cohort of r clients. The result is right
  for Poisson cohorts too if r >= 1, with a variance of at most mean |g_i|^2: as
  the gradients h_i of f_i at w* have mean 0, |mean g_i|^2 is at most the mean
  of |g_i - E h_i|^2, and convexity has a term |grad f_i(w) - h_i|^2 / (2 L) to
  spare, which pays for that; the other steps have room for eta^2 |g_i|^2.

  >>> s = Schedule(1.0, 4.0, 0.125, 4, 16, 2.0)  # alpha = 1, x = 1/2
  >>> clip_left(s, [2.0, 9.0], [1.0, 32.0], [1.0, 1.0]).item()
  6.875
  """
  x = s.load
  excess, gaps = np.asarray(excess, float), np.asarray(gaps, float)
  inside = (2 - x - x**2) * excess - 1.5 * x * gaps
  return _left(s, inside, np.asarray(norms, float), 0.0)


@statement('S1-Thm4', 'Theorems 4 and 6', printed='wrong', corrected='loose')
def normalize_left(
  s: Schedule,
  excess: npt.ArrayLike,
  norms: npt.ArrayLike,
  gaps: npt.ArrayLike,
  *,
  form: Form = 'corrected',
) -> npt.NDArray:
  r"""Return the quantity that normalisation keeps below `right`.

  The mean over the clients of

  .. math:: \frac{C}{\|u_i\|} [(2 - x^2)(f_i(w) - f_i(w^*)) - x^2 \Delta_i^*]
     - \frac{x \hat C^2}{2 L} \text{ or } \tfrac{3 \hat C}{8 L E} \|u_i\|.

  Arguments are those of `clip_left`. Poisson cohorts break the printed form.
  Ours takes x C^^2 / (2 L) 1 + cohort_variance times, and has 3 / 8 less x / 2
  cohort_variance. 1 / |u_i| is unbounded: for a client near its own minimum the
  left side falls without limit, so that it bounds no suboptimality, not even in
  many rounds. An update of 0 counts as -x C^^2 / (2 L).

  >>> s = Schedule(1.0, 4.0, 0.125, 4, 16, 2.0)
  >>> normalize_left(s, [2.0, 9.0], [8.0, 32.0], [1.0, 1.0]).item()
  7.25
  """
  x = s.load
  v = 0.0 if form == 'printed' else s.cohort_variance
  norms, gaps = np.asarray(norms, float), np.asarray(gaps, float)
  inside = (2 - x**2) * np.asarray(excess, float) - x**2 * gaps
  lost = (1 + v) * x * s.clip**2 / (2 * s.smoothness)
  scale = s.clip_norm / np.where(norms > 0, norms, np.inf)
  return _left(s, scale * inside - lost, norms, v)


def _left(s, inside, norms, v):
  rate = (3 / 8 - v * s.load / 2) * s.clip
  outside = rate / (s.smoothness * s.local_steps) * norms
  return np.where(norms <= s.clip_norm, inside, outside).mean(-1)


@statement('S1-Thm3', 'Theorem 3', printed='order')
def simplified_bound(
  clip: Positive,
  distance: NonNegative,
  mean_gap: NonNegative,
  *,
  rho: Fraction,
  local_steps: Count,
) -> float:
  """Return (C^ |w_0 - w*| + E mean Delta_i*) rho.

  Of the mean of min(f_i(w) - f_i(w*), C^ |grad f_i(w)| / L). With min f_i for
  f_i(w*), as f_i* may be read, it fails: at w* the left side has mean Delta_i*.

  >>> simplified_bound(4.0, 2.0, 0.5, rho=0.125, local_steps=4)
  1.25
  """
  return (clip * distance + mean_gap * local_steps) * rho
