"""What the papers say, a row a statement: the verdict on it, and the evidence.

The rows of a paper are in papers/NAME/inventory.toml, in the order of its text.
"""

from collections.abc import Iterable, Mapping
import functools
import pathlib
import tomllib
from typing import Any, NamedTuple

from . import results, statements, verdicts

# Of a definition, an algorithm or a setting, 'holds' says that the project has
# it as it is printed.
WRONG = 'wrong as printed'
VERDICTS = (
  verdicts.HOLDS, verdicts.FAILS, WRONG, verdicts.UNDECIDED, 'not checkable'
)  # fmt: skip
FOLDERS = {'S0': 'song', 'S1': 'das', 'S2': 'haddadpour', 'S4': 'chen'}


class Row(NamedTuple):
  """A statement of a paper, and what the project knows of it."""

  id: str
  place: str  # in the paper, as its reader finds it
  says: str  # the statement in a plain sentence
  verdict: str  # one of VERDICTS
  # What is right instead, numbers beside those of the claims, what would
  # decide it, or why nothing can.
  why: str = ''
  functions: tuple[str, ...] = ()  # ids of the registry, beside its own
  claims: tuple[str, ...] = ()  # 'STUDY: beginning of the claim'
  against: tuple[str, ...] = ()  # likewise, claims that contradict it
  tests: tuple[str, ...] = ()  # 'tests/ROOM/test_x.py::test_y'


class Part(NamedTuple):
  """A part of a paper, such as its abstract or a figure."""

  title: str
  rows: tuple[Row, ...]


class Paper(NamedTuple):
  """The rows of a paper."""

  summary: str  # what to believe of it
  own: tuple[str, ...]  # claims of its studies that the paper does not make
  parts: tuple[Part, ...]

  @property
  def rows(self) -> list[Row]:
    """All rows, in the order of the text."""
    return [row for part in self.parts for row in part.rows]

  def counts(self) -> str:
    """Count the rows of every verdict.

    >>> read('S1').counts().endswith('not checkable')
    True
    """
    found = [row.verdict for row in self.rows]
    return ', '.join(f'{found.count(v)} {v}' for v in VERDICTS)


@functools.cache
def read(paper: str) -> Paper:
  """Read the rows of a paper by its key, such as 'S4'."""
  folder = pathlib.Path(__file__).parents[1] / FOLDERS[paper]
  data = tomllib.loads((folder / 'inventory.toml').read_text(encoding='utf-8'))
  parts = tuple(
    Part(part['title'], tuple(map(_row, part['row']))) for part in data['part']
  )
  return Paper(data['summary'], tuple(data.get('own', ())), parts)


def _row(fields: Mapping[str, Any]) -> Row:
  frozen: Any = lambda v: tuple(v) if isinstance(v, list) else v
  return Row(**{k: frozen(v) for k, v in fields.items()})


def functions(row: Row) -> list[statements.Statement]:
  """Return the statements of the registry that belong to a row."""
  return [
    s for s in statements.statements() if s.id in (row.id, *row.functions)
  ]


def claims(
  names: Iterable[str], found: Iterable[results.Result]
) -> list[tuple[str, Mapping[str, Any]]]:
  """Return the named claims, each with its study.

  `found` are stored results with verdicts, of `results.collect`. ValueError if
  no claim begins with a name.
  """
  pairs = [(r['name'], claim) for r in found for claim in r['claims']]
  named = []
  for name in names:
    alike = [p for p in pairs if f'{p[0]}: {p[1]["text"]}'.startswith(name)]
    if not alike:
      raise ValueError(f'No stored claim begins with {name!r}.')
    named += alike
  return named
