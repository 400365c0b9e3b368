"""FedSKETCH: a run, its constants, and the lemmas on one round.

Haddadpour, Karimi, Li and Li, arXiv:2008.04975, Assumptions 2 to 5, Lemmas 4 to
6: Algorithm 5 on losses that are alike.
"""

import operator
from typing import Annotated, NamedTuple

from fl_sketch.utils import checks
import numpy as np
import numpy.typing as npt

from ...common import conditions
from ...common.conditions import Count, NonNegative, Numbers, Positive, Squares
from ...common.evaluation import formula
from ...common.statements import statement
from ...das.statements import lemmas as das_lemmas

# Of the clients of a round.
Hashes = Annotated[str, conditions.choice(('shared', 'independent'))]

smoothness = statement('S2-Asm2', 'Assumption 2', printed='holds')(
  das_lemmas.smoothness
)


@statement('S2-Asm3', 'Assumption 3', printed='holds')
def pl_constant(excess: npt.ArrayLike, gradients: npt.ArrayLike) -> float:
  """Return min |grad f|^2 / (2 (f - f*)): mu at most that; [...] and [..., d].

  Strong convexity implies it, not the reverse, as the paper remarks.

  >>> pl_constant([2.0, 1.0], [[2.0], [2.0]])
  1.0
  """
  excess = np.asarray(excess, float)
  checks.positive('excess', float(excess.min()))
  square = np.sum(np.square(gradients), axis=-1)
  return checks.real('pl_constant', float(np.min(square / (2 * excess))))


@statement('S2-Asm4', 'Assumptions 4, 5', printed='holds')
def gradient_variance(gradients: npt.ArrayLike) -> float:
  """Return an unbiased estimate of sigma^2 from [count, d], at one point.

  >>> gradient_variance([[1.0, 0.0], [3.0, 0.0]])
  2.0
  """
  gradients = np.asarray(gradients, float)
  checks.at_least('len(gradients)', len(gradients), 2)
  return checks.real('variance', float(gradients.var(axis=0, ddof=1).sum()))


class Constants(NamedTuple):
  """The parameters of a run and the constants of its problem.

  The compressor has E|C(x) - x|^2 <= omega |x|^2, see `compressors`; variance
  is that of one stochastic gradient.
  """

  omega: NonNegative
  clients: Count
  smoothness: Positive
  variance: NonNegative
  local_steps: Count
  rounds: Count
  client_lr: Positive
  server_lr: Positive
  hashes: Hashes = 'shared'


@formula
def spread(
  omega: NonNegative,
  clients: Count,
  hashes: Hashes = 'shared',
  *,
  form: conditions.Form = 'corrected',
) -> float:
  """Return omega / k + 1 for independent hashes, omega + 1 for shared ones.

  >>> spread(8.0, 4), spread(8.0, 4, 'independent')
  (9.0, 3.0)
  """
  apart = form == 'printed' or hashes == 'independent'
  return 1 + omega / (clients if apart else 1)


def spread_of(run: Constants, *, form: conditions.Form = 'corrected') -> float:
  """Return b, the `spread` of a run.

  >>> spread_of(Constants(8.0, 4, 1.0, 1.0, 2, 1, 0.5, 1.0))
  9.0
  """
  return spread(run.omega, run.clients, run.hashes, form=form)


@statement('S2-Lem4', 'Lemma 4', printed='wrong', corrected='holds')
def second_moment(
  run: Constants,
  gradient_squares: Squares,
  *,
  convex: bool = False,
  form: conditions.Form = 'corrected',
) -> Numbers:
  """Return (omega + 1) tau sigma^2 / k + tau b S, of E|Phi|^2 / eta^2.

  S is the mean over the clients of sum_c |grad f(x_j^c)|^2, b of `spread`. This
  is the end of the proof, (12); the statement, (6), has tau b sigma^2, which is
  larger. The printed bound needs independent hashes (it fails by up to k for
  shared ones) and gradients that do not follow earlier noise: one step, or
  `convex` (every sample's loss) with eta <= 2 / L. Otherwise square roots are
  added, which is twice the bound at most.

  >>> run = Constants(8.0, 4, 1.0, 1.0, 2, 1, 0.1, 1.0)
  >>> second_moment(run, 3.0, convex=True)
  58.5
  >>> second_moment(run, 3.0, form='printed')
  22.5
  """
  b, tau = spread_of(run, form=form), run.local_steps
  noise = tau * run.variance
  add = operator.add if convex or tau == 1 or form == 'printed' else _add_roots
  mean = add(tau * gradient_squares, noise / run.clients)
  if run.hashes == 'shared' and form == 'corrected':
    return b * mean
  return mean + (b - 1) * add(tau * gradient_squares, noise)


def _add_roots(a, b):
  """Return (sqrt(a) + sqrt(b))^2: E|x + y|^2 of any x and y of these."""
  return a + b + 2 * (a * b) ** 0.5


@statement('S2-Lem5', 'Lemma 5', printed='holds')
def inner_product(
  run: Constants,
  gradient_square: Squares,
  gradient_squares: Squares,
  drifts: Squares,
) -> Numbers:
  """Return eta / 2 (L^2 D - tau |grad f(x)|^2 - S) >= -E<grad f(x), Phi>.

  S as of `second_moment`, D (drifts) the mean over the clients of sum_c |x -
  x_j^c|^2, x where the round starts.

  >>> run = Constants(8.0, 4, 1.0, 1.0, 2, 1, 0.5, 1.0)
  >>> inner_product(run, 2.0, 3.0, 1.0)
  -1.5
  """
  near = run.local_steps * gradient_square + gradient_squares
  away = run.smoothness**2 * drifts
  return run.client_lr / 2 * (away - near)


@statement('S2-Lem6', 'Lemma 6', printed='wrong', corrected='holds')
def drift(
  run: Constants,
  gradient_squares: Squares,
  *,
  convex: bool = False,
  form: conditions.Form = 'corrected',
) -> Numbers:
  """Return eta^2 tau (S + sigma^2) >= E|x - x_j^c|^2, for every c < tau.

  Printed for all losses; ours as of `second_moment`.

  >>> run = Constants(8.0, 4, 1.0, 1.0, 4, 1, 0.5, 1.0)
  >>> drift(run, 4.0), drift(run, 4.0, convex=True)
  (9.0, 5.0)
  """
  tau = run.local_steps
  add = operator.add if form == 'printed' or convex or tau <= 2 else _add_roots
  return run.client_lr**2 * tau * add(gradient_squares, run.variance)
