"""Types of a reproduction: a study, its report and its claims."""

from collections.abc import Callable, Sequence
import math
from typing import Any, NamedTuple

from fl_sketch.reporting.plotting import axes, figure
from fl_sketch.reproduce import lab as lab_lib

HOLDS = 'holds'
FAILS = 'does not hold'
UNTESTABLE = 'not testable here'


class Claim(NamedTuple):
  """A claim of a paper as an inequality between numbers.

  >>> claim = Claim('SAFL is no worse than FedAvg', 0.3, '>=', 0.0, error=0.1)
  >>> claim.verdict, claim.margin
  ('holds', 0.3)
  >>> Claim('It converges', math.nan, '<=', 1.0).verdict  # it diverged
  'does not hold'

  Attributes:
    text: what must hold, in words, with the unit of the numbers.
    measured: mean over seeds; NaN if a run diverged, None if it cannot be had.
    relation: '>=' or '<='.
    bound: what `measured` is compared with.
    error: standard error of `measured` over seeds; NaN where there is one.
    remark: why it cannot be tested. What was tried where it does not hold is
      in docs/results/NAME.md, under a heading with which `text` begins.
  """

  text: str
  measured: float | None
  relation: str = '>='
  bound: float = 0.0
  error: float = math.nan
  remark: str = ''

  @property
  def margin(self) -> float | None:
    """Distance from the bound; negative where the claim fails."""
    if self.measured is None:
      return None
    over = self.measured - self.bound
    return over if self.relation == '>=' else -over

  @property
  def verdict(self) -> str:
    """'holds', 'does not hold' or 'not testable here'."""
    if self.margin is None:
      return UNTESTABLE
    return HOLDS if self.margin >= 0 else FAILS


class Table(NamedTuple):
  """A table: its cells as they shall stand there."""

  caption: str
  head: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  """A figure with its caption."""

  caption: str
  figure: figure.Figure


def drawn(caption: str, ax: axes.Axes) -> Picture:
  """The picture of its only axes."""
  fig = ax.get_figure(root=True)
  assert fig is not None
  return Picture(caption, fig)


class Report(NamedTuple):
  """Result of a study: claims, numbers, tables and pictures.

  Attributes:
    claims: in the order of EXPERIMENTS.
    seeds: the numbers of every seed, by what was run; goes into the JSON.
    tables: beside what the paper prints, where it prints numbers.
    pictures: the paper's figures, made again.
    notes: paragraphs: what the paper leaves open, where we depart.
  """

  claims: Sequence[Claim]
  seeds: dict[str, Any]
  tables: Sequence[Table] = ()
  pictures: Sequence[Picture] = ()
  notes: Sequence[str] = ()


class Study(NamedTuple):
  """An experiment of a paper.

  Attributes:
    name: of the figure or table, as the inventory of the papers has it.
    title: what it shows, in a line.
    source: paper, arXiv id, figure or table.
    run: does it, at the laboratory's scale.
    minutes: what it takes at cpu scale on 2 cores.
  """

  name: str
  title: str
  source: str
  run: Callable[[lab_lib.Lab], Report]
  minutes: float


def rounds(value: float) -> str:
  """Formats a number of rounds; infinity is 'not reached'.

  >>> rounds(14.0), rounds(math.inf)
  ('14', 'not reached')
  """
  return f'{value:.0f}' if math.isfinite(value) else 'not reached'


def summary(verdicts: Sequence[str]) -> str:
  """The verdicts of many claims in a line.

  >>> summary([HOLDS, FAILS, UNTESTABLE])
  '1 of 2 claims hold, 1 not testable here'
  """
  untestable = sum(v == UNTESTABLE for v in verdicts)
  tested = len(verdicts) - untestable
  held = sum(v == HOLDS for v in verdicts)
  parts = [f'{held} of {tested} claims hold'] if tested else []
  parts += [f'{untestable} {UNTESTABLE}'] if untestable else []
  return ', '.join(parts)
