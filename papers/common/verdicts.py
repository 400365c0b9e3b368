"""Three-valued verdicts on claims: intervals over seeds, one error rate a page.

A claim is an inequality between a measured number and a bound. Its numbers over
seeds give an interval and a two-sided p-value. Of the decided claims of a page
at most 5 % are wrong in the mean, whatever their dependence (Benjamini and
Yekutieli, Annals of Statistics 29, 2001).
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any, NamedTuple

from fl_sketch.runs.metrics import LEVEL, half_width
import numpy as np
from scipy import special, stats

from .conditions import Numbers

HOLDS = 'holds'
FAILS = 'does not hold'
UNDECIDED = 'undecided'
UNTESTABLE = 'not testable here'
_SIGN = {'>=': 1, '<=': -1}
_NOT_RUN = 'This scale does not run the cells that it compares.'
_WORDS = {
  HOLDS: ('holds', 'hold'),
  FAILS: ('does not hold', 'do not hold'),
  UNDECIDED: ('is undecided', 'are undecided'),
  UNTESTABLE: ('is not testable here', 'are not testable here'),
}


class Claim(NamedTuple):
  """A claim of a paper as an inequality between numbers.

  Made by `of_seeds`, `exact` and `untestable`.
  """

  text: str  # what must hold, in words, with the unit of the numbers
  # Mean over seeds; NaN if a run diverged, None if it cannot be had.
  measured: float | None
  relation: str  # '>=' or '<='
  bound: float  # what `measured` is compared with
  # Lower end of the 95 % interval of `measured`; NaN without one.
  low: float = math.nan
  high: float = math.nan  # its upper end
  # Two-sided p-value of `measured` being the bound; 1 without replicates.
  p: float = 1.0
  # A proof or an exact count, which no randomness can change.
  exact: bool = False
  # Why it cannot be tested. What was tried where it does not hold is in
  # docs/results/NAME.md, under a heading with which `text` begins.
  remark: str = ''
  # The numbers that decide it: a row of seeds for each cell.
  values: Any = ()

  @property
  def met(self) -> bool:
    """Whether `measured` satisfies the inequality, however uncertain it is."""
    return self.measured is not None and (
      self.measured >= self.bound
      if self.relation == '>='
      else self.measured <= self.bound
    )


def exact(text: str, value: float, relation: str, bound: float) -> Claim:
  """A claim about a proof, a formula or an exact count.

  >>> decide([exact('bytes of a table over 4 b', 1.0, '<=', 1.0)])
  ['holds']
  """
  return Claim(text, float(value), relation, bound, p=0.0, exact=True)


def untestable(text: str, relation: str, bound: float, remark: str) -> Claim:
  """Makes a claim whose numbers cannot be had, with the reason."""
  return Claim(text, None, relation, bound, remark=remark)


def of_seeds(
  text: str,
  values: Mapping[str, Numbers] | Numbers,
  relation: str,
  bound: float,
) -> Claim:
  r"""A claim on means over seeds; of several cells, on the worst of them.

  Seeds are the last axis of `values`. Cells may have names; the text gets the
  name of the worst. Each cell has a t-interval over seeds, paired where seeds
  are shared. Of m cells, all must keep the bound; one breaks it at level 1 / m:

  .. math:: p = 2 \min(\max_i p_i^{keeps}, m \min_i p_i^{breaks})

  The interval has the bounds that this test does not reject. A cell whose
  values are all equal or not all finite (a run diverged) gets a sign test and
  no interval. Without cells the claim is untestable.

  >>> claim = of_seeds('loss', [0.9, 1.0, 1.1], '<=', 2.0)
  >>> round(claim.measured, 2), round(claim.high, 2), round(claim.p, 4)
  (1.0, 1.25, 0.0033)
  >>> pair = {'a': [1.0, 3.0], 'b': [0.0, 0.5]}
  >>> of_seeds('points', pair, '>=', 0)[:2]
  ('points; the worst: b', 0.25)
  """
  named = isinstance(values, Mapping)
  rows = [*values.values()] if named else values
  if not len(rows):
    return untestable(text, relation, bound, _NOT_RUN)
  x = np.reshape(np.asarray(rows, float), (-1, np.shape(rows)[-1]))
  cells = [_cell(row, relation, bound) for row in x]
  # NaN, of a run that diverged, is the worst.
  worst = int(np.argmin([np.nan_to_num(c.mean, nan=-np.inf) for c in cells]))
  if named and len(cells) > 1:
    text = f'{text}; the worst: {[*values][worst]}'
  # The least is above `keeps` and below `breaks`. NaN, of a cell without an
  # interval, stays.
  keeps = np.min([c.mean - c.half(LEVEL / 2) for c in cells])
  breaks = np.min([c.mean + c.half(LEVEL / 2 / len(cells)) for c in cells])
  low, high = sorted(bound + _SIGN[relation] * np.array([keeps, breaks]))
  p = 2 * min(
    max(c.keeps for c in cells), len(cells) * min(c.breaks for c in cells)
  )
  numbers = float(low), float(high), min(1.0, p)
  measured = float(x[worst].mean())
  return Claim(text, measured, relation, bound, *numbers, values=x.tolist())


def both_ways(values: Numbers) -> np.ndarray:
  """Two cells, whose worst of '<=' is the absolute mean of a difference.

  >>> round(of_seeds('apart', both_ways([-1.0, -2.0]), '<=', 0.5).measured, 1)
  1.5
  """
  return np.stack([values, np.negative(values)])


class _Cell(NamedTuple):
  """The mean of a cell over its bound, and one-sided p-values of its sign."""

  mean: float
  error: float
  count: int
  keeps: float
  breaks: float

  def half(self, tail: float) -> float:
    """Half the width of its t-interval; NaN without one."""
    return half_width(self.error, self.count, tail)


def _cell(x: np.ndarray, relation: str, bound: float) -> _Cell:
  over, count = _SIGN[relation] * (x - bound), len(x)
  mean = float(over.mean())
  error = float(over.std(ddof=1)) / count**0.5 if count > 1 else math.nan
  # Equal but for rounding have no spread to judge by.
  size = max(abs(x).max(), abs(bound))
  if not (math.isfinite(error) and error > 1e-12 * size):
    return _Cell(mean, math.nan, count, *_signs(over))
  breaks, keeps = special.stdtr(count - 1, np.array([1, -1]) * mean / error)
  return _Cell(mean, error, count, float(keeps), float(breaks))


def _signs(over: np.ndarray) -> tuple[float, float]:
  """One-sided p-values of the sign test; what is not a number breaks it."""
  if len(over) < 2:
    return 1.0, 1.0
  keeps = int((over > 0).sum())
  breaks = int((over < 0).sum() + np.isnan(over).sum())
  # P(at least `count` of the signs), each being a fair coin.
  tail = lambda count: special.bdtrc(count - 1, len(over), 0.5) if count else 1
  return float(tail(keeps)), float(tail(breaks))


def decide(claims: Sequence[Claim]) -> list[str]:
  """The verdict on each claim of a page.

  Decided are exact claims, and those that survive Benjamini and Yekutieli's
  procedure at 5 % over all claims of the page that randomness can change.

  >>> sure = Claim('a', 2.0, '>=', 1.0, p=1e-4)
  >>> decide([sure, sure._replace(relation='<='), sure._replace(p=0.04)])
  ['holds', 'does not hold', 'undecided']
  """
  tested = [c for c in claims if c.measured is not None and not c.exact]
  ps = [c.p for c in tested]
  adjusted = stats.false_discovery_control(ps, method='by') if ps else ()
  sure = {id(c): q <= LEVEL for c, q in zip(tested, adjusted, strict=True)}
  return [_verdict(c, c.exact or sure.get(id(c), False)) for c in claims]


def decided_by_holm(ps: Sequence[float]) -> int:
  """Counts the claims that Holm's procedure decides at 5 %, by their p-values.

  >>> decided_by_holm([0.03, 0.001, 0.02]), decided_by_holm([0.03, 0.001, 0.04])
  (3, 1)
  """
  steps = np.sort(ps) * np.arange(len(ps), 0, -1)
  return int(np.logical_and.accumulate(steps <= LEVEL).sum())


def _verdict(claim: Claim, sure: bool) -> str:
  if claim.measured is None:
    return UNTESTABLE
  if not sure:
    return UNDECIDED
  return HOLDS if claim.met else FAILS


def summary(verdicts: Sequence[str]) -> str:
  """Counts the verdicts of many claims in a line, '' without any.

  >>> summary([HOLDS, FAILS, UNDECIDED, HOLDS])
  '2 hold, 1 does not hold, 1 is undecided'
  """
  counts = {v: sum(w == v for w in verdicts) for v in _WORDS}
  parts = [f'{n} {_WORDS[v][n > 1]}' for v, n in counts.items() if n]
  return ', '.join(parts)
