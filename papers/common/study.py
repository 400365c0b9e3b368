"""Types of a reproduction: a study and its report."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fl_sketch.reporting import figures

from . import verdicts
from .workspace import Workspace


class Table(NamedTuple):
  """A table: its cells as they shall stand there."""

  caption: str
  head: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  """A figure as data, with its caption.

  Attributes:
    caption: what it shows, below it.
    panels: its axes and lines.
    columns: most panels beside one another.
  """

  caption: str
  panels: Sequence[figures.Panel]
  columns: int = figures.COLUMNS


class Report(NamedTuple):
  """Result of a study: claims, numbers, tables and pictures.

  Attributes:
    claims: as docs/results shows them, in this order.
    seeds: the numbers of every seed, by what was run; goes into the JSON.
    tables: beside what the paper prints, where it prints numbers.
    pictures: the paper's figures, made again.
    notes: paragraphs: what the paper leaves open, where we depart.
  """

  claims: Sequence[verdicts.Claim]
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
    run: does it, at the scale of the workspace.
    minutes: what it takes at cpu scale on 2 cores.
  """

  name: str
  title: str
  source: str
  run: Callable[[Workspace], Report]
  minutes: float
