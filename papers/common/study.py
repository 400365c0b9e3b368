"""Types of a reproduction: a study and its report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fl_sketch.runs import figures

from . import registration, verdicts
from .workspace import Workspace

MEANS = 'Means over seeds with intervals of 95 %.'


class Table(NamedTuple):
  """A table: its cells as they shall stand there."""

  caption: str
  head: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  """A figure as data, with its caption."""

  caption: str  # what it shows, below it
  panels: Sequence[figures.Panel]  # its axes and lines
  columns: int = figures.COLUMNS  # most panels beside one another


class Report(NamedTuple):
  """Result of a study: claims, numbers, tables and pictures."""

  claims: Sequence[verdicts.Claim]  # as docs/results shows them, in this order
  # The numbers of every seed, by what was run; goes into the JSON.
  seeds: dict[str, Any]
  # Beside what the paper prints, where it prints numbers.
  tables: Sequence[Table] = ()
  pictures: Sequence[Picture] = ()  # the paper's figures, made again
  # Paragraphs: what the paper leaves open, where we depart.
  notes: Sequence[str] = ()


def registered(
  registered: Mapping[str, Any],
  values: Mapping[str, Any],
  seeds: dict[str, Any],
  table: tuple[str, Sequence[str], Sequence[Sequence[str]]],
  panels: Sequence[figures.Panel],
  *notes: str,
) -> Report:
  """The report of a study with a registration, a table and a figure.

  `values` are those of `registration.claims`; the panels have means over seeds.
  """
  claims = registration.claims(registered, values)
  pictures = [Picture(MEANS, panels)]
  return Report(claims, seeds, [Table(*table)], pictures, notes)


class Study(NamedTuple):
  """An experiment of a paper."""

  name: str  # of the figure or table, as the inventory of the papers has it
  title: str  # what it shows, in a line
  source: str  # paper, arXiv id, figure or table
  run: Callable[[Workspace], Report]  # does it, at the scale of the workspace
  minutes: float  # what it takes at cpu scale on 2 cores
