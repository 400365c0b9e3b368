"""FedSKETCH: communication cost of an accuracy, and the paper's comparisons.

Haddadpour, Karimi, Li and Li, arXiv:2008.04975, Corollaries 2 and 3, Tables 1
and 2. Constants that are not named, L and sigma^2 among them, are 1, so that
ratios of rows mean more than rows.
"""

import functools
import math
from typing import Annotated, Any, NamedTuple

from fl_sketch.utils import markdown

from ...common import conditions
from ...common.conditions import Count, Fraction, Positive
from ...common.evaluation import formula
from ...common.statements import statement
from . import compressors, plans
from .lemmas import Constants


class Floats(NamedTuple):
  """Floats of all uplinks: of one client, and of the cohorts of all rounds."""

  client: int
  total: int


@statement('S2-Cor2', 'Corollaries 2 and 3', printed='order')
def communication(run: Constants, *, rows: Count, cols: Count) -> Floats:
  """Return R t cols, and k times it, for t rows.

  The paper has t = `rows_needed` and the R of Theorems 2 and 3. Equation (16)
  admits about omega + 1 times that R: d / eps floats, as without a sketch.

  >>> communication(Constants(3, 4, 1, 1, 5, 100, 0.01, 4.0), rows=2, cols=25)
  Floats(client=5000, total=20000)
  """
  client = run.rounds * rows * cols
  return Floats(client, client * run.clients)


@formula
def rows_needed(dimension: Count, rounds: Count, failure: Fraction) -> int:
  """Return ln(d R / delta), rounded up.

  >>> rows_needed(101, 100, 0.01)
  14
  """
  return math.ceil(math.log(dimension * rounds / failure))


@statement('S2-Cor3', 'Corollary 3', printed='order')
def scaffold_floats(
  objective: Annotated[str, conditions.choice(('nonconvex', 'pl'))],
  *,
  dimension: Count,
  clients: Count,
  population: Count,
  accuracy: Fraction,
  kappa: Positive = 1.0,
) -> float:
  """Return Scaffold's, of all clients: (k d / eps) (p / k)^(2/3).

  If 'nonconvex'; kappa k d ln(p / (k eps)) if 'pl'.

  >>> spec = {'dimension': 100, 'clients': 4, 'population': 32}
  >>> round(scaffold_floats('nonconvex', accuracy=0.1, **spec))
  16000
  """
  sent, ratio = clients * dimension, population / clients
  if objective == 'pl':
    return kappa * sent * math.log(ratio / accuracy)
  return sent / accuracy * ratio ** (2 / 3)


class ProblemSizes(NamedTuple):
  """Problem sizes of the paper's tables; L, sigma^2 and constants are 1.

  population is p, of Scaffold; kappa = L / mu is of 'pl'; the sketches of all
  rounds fail with probability `failure`.
  """

  dimension: int
  cols: int
  clients: int
  population: int
  accuracy: float
  kappa: float
  failure: float


@statement('S2-Tab1', 'Table 1', printed='order')
def homogeneous_table(setting: ProblemSizes) -> str:
  """Return Table 1 as Markdown: homogeneous clients.

  Beside the printed rows: the corrected theorems (shared hashes, one row), and
  dense updates. Ivkin et al. have the printed omega / eps, and the rate of
  their own theorem, max(omega / sqrt(eps), 1 / eps); constants are 1.

  >>> sizes = ProblemSizes(1000, 50, 10, 20, 0.1, kappa=10, failure=0.01)
  >>> print(homogeneous_table(sizes).splitlines()[2])
  | Ivkin et al. 2019 | pl | 172 | 1 | 1.46e+05 | 1.46e+06 |
  """
  eps, omega = setting.accuracy, _omega(setting, 'printed')
  ivkin = max(omega / math.sqrt(eps), 1 / eps)
  others = [
    _row(setting, 'Ivkin et al. 2019', 'pl', ivkin),
    _row(setting, 'Ivkin et al. 2019, printed', 'pl', omega / eps),
    *(_scaffold(setting, objective) for objective in ('nonconvex', 'pl')),
  ]
  return _markdown([*others, *_ours(setting, 'Theorem 2', plans.fedsketch)])


@statement('S2-Tab2', 'Table 2', printed='order')
def heterogeneous_table(setting: ProblemSizes) -> str:
  """Return Table 2 as Markdown: heterogeneous clients.

  Rows as of `homogeneous_table`; Rothchild et al. have one rate for updates
  that contract and one for heavy hitters in a window, max(I^(2/3), 2 - alpha) /
  eps^3 with m / alpha columns, where I = alpha = 1 here. Strongly convex losses
  are in Theorem 3, not in Table 2.

  >>> sizes = ProblemSizes(1000, 50, 10, 20, 0.1, kappa=10, failure=0.01)
  >>> print(heterogeneous_table(sizes).splitlines()[2])
  | Li et al. 2019 | convex | 5437 | 1 | 5.71e+06 | 5.71e+07 |
  """
  eps, omega = setting.accuracy, _omega(setting, 'printed')
  d, m = setting.dimension, setting.cols
  contracting = max(1 / eps**2, (d**2 - m * d) / (m**2 * eps))
  others = [
    _row(setting, 'Li et al. 2019', 'convex', omega / eps**2),
    _row(setting, 'Rothchild et al. 2020, 1', 'nonconvex', contracting),
    _row(setting, 'Rothchild et al. 2020, 2', 'nonconvex', 1 / eps**3),
  ]
  return _markdown([*others, *_ours(setting, 'Theorem 3', plans.fedsketchgate)])


def _scaffold(setting, objective):
  """Return a row of Scaffold's rounds, of d floats of every client."""
  d, k = setting.dimension, setting.clients
  total = scaffold_floats(
    objective, dimension=d, clients=k, population=setting.population,
    accuracy=setting.accuracy, kappa=setting.kappa,
  )  # fmt: skip
  return _row(setting, 'Scaffold', objective, total / (k * d), rows=1, cols=d)


def _omega(setting, form):
  return compressors.privix_variance(setting.dimension, setting.cols, form=form)


def _ours(setting, name, plan):
  """Yield plans by objective: printed, corrected, and without a sketch."""
  printed, exact = (_omega(setting, form) for form in conditions.FORMS)
  size = setting.dimension, setting.cols
  heaprix = compressors.heaprix_variance(*size, form='printed')
  for objective in plans.OBJECTIVES:
    numbers: dict[str, Any] = {'smoothness': 1.0, 'variance': 1.0}
    numbers |= {'clients': setting.clients, 'accuracy': setting.accuracy}
    # Rounds and steps do not depend on it, if it is large enough.
    numbers['server_lr'] = 2 * setting.clients / setting.accuracy
    numbers['pl_constant'] = 1 / setting.kappa if objective == 'pl' else None
    build = functools.partial(plan, objective, **numbers)
    runs = (
      (name, build(omega=printed, form='printed'), {}),
      (f'{name}, HEAPRIX', build(omega=heaprix, form='printed'), {}),
      (f'{name}, corrected', build(omega=exact), {'rows': 1}),
      ('no sketch', build(omega=0.0), {'rows': 1, 'cols': setting.dimension}),
    )
    for label, run, table in runs:
      length = run.rounds, run.local_steps
      yield _row(setting, label, objective, *length, **table)


def _row(setting, label, objective, rounds, steps=1, *, rows=None, cols=None):
  rounds = math.ceil(rounds)
  rows = rows or rows_needed(setting.dimension, rounds, setting.failure)
  run = Constants(0.0, setting.clients, 1.0, 1.0, steps, rounds, 1.0, 1.0)
  sent = communication(run, rows=rows, cols=cols or setting.cols)
  numbers = str(rounds), str(steps), f'{sent.client:.3g}', f'{sent.total:.3g}'
  return label, objective, *numbers


def _markdown(rows):
  names = 'reference', 'objective', 'rounds', 'local steps'
  return markdown.table((*names, 'floats of a client', 'of all'), rows)
