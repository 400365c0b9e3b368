"""Registry of the papers' statements, each form labelled by its validity."""

from collections.abc import Callable
import importlib
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

from fl_sketch.utils import checks, markdown

from . import evaluation, symbols
from .conditions import FORMS

# How far a form of a statement may be trusted.
Label = Literal[
  'holds',  # proven, and met by every measurement of the tests
  'loose',  # the same, but orders of magnitude above what is measured
  'order',  # known up to a constant the paper does not name; it is 1 here
  'wrong',  # does not hold, or cannot be met: a test shows it
]
# `papers` in a checkout, `fl_sketch.papers` in an installed package.
_PAPERS = __name__.removesuffix('.common.statements')
PAPERS = {'S0': 'Song', 'S1': 'Das', 'S2': 'FedSKETCH', 'S4': 'Chen'}
_MODULES = {
  'chen.statements': (
    'constants', 'corollaries', 'gradients', 'loss_bounds', 'monitor', 'rates',
  ),
  'common': ('tails',),
  'das.statements': ('lemmas', 'rates', 'tradeoffs'),
  'haddadpour.statements': (
    'compressors', 'lemmas', 'plans', 'rates', 'tables',
  ),
  'song.statements': (
    'communication', 'convergence', 'leakage', 'lemmas', 'plans', 'privacy',
    'textbook',
  ),
}  # fmt: skip

P = ParamSpec('P')
R = TypeVar('R')
_statements: dict[str, 'Statement'] = {}


class Statement(NamedTuple):
  """A statement of a paper: its id, function, source, and labels by form."""

  id: str
  function: Callable[..., Any]
  source: str
  labels: dict[str, Label]  # by form

  @property
  def symbols(self) -> str:
    """The paper's symbols for the function's arguments; see `symbols.text`."""
    return symbols.text(self.id[:2], self.function)


def statement(
  identity: str, place: str, **labels: Label
) -> Callable[[Callable[P, R]], evaluation.Formula[P, R]]:
  """Registers a function under the id of the statement that it computes.

  The id begins with a key of `PAPERS`; `place` is where the statement stands
  there. The function becomes an `evaluation.formula`, unless it returns text;
  in both cases its arguments are checked by their annotations. Where `labels`
  has both forms, it takes form='printed' or 'corrected', the latter by default.

  >>> @statement('S0-T1', 'Theorem 1', printed='loose')
  ... def bound(rounds):
  ...   return 1 / rounds
  >>> _statements.pop('S0-T1')[2:]
  ('Song, Theorem 1', {'printed': 'loose'})
  """
  if not labels or not set(labels) <= set(FORMS):
    raise ValueError(f'{labels=} must be of some of {FORMS}.')
  paper = identity[:2]
  checks.choice('paper', paper, tuple(PAPERS))

  def enter(function: Callable[P, R]) -> evaluation.Formula[P, R]:
    if identity in _statements:
      raise ValueError(f'{identity=} is entered twice.')
    source = f'{PAPERS[paper]}, {place}'
    text = function.__annotations__.get('return') is str
    extend = evaluation.with_checks if text else evaluation.formula
    extended: Any = extend(function)
    _statements[identity] = Statement(identity, extended, source, labels)
    return extended

  return enter


def modules() -> list[str]:
  """Returns the full names of all modules with statements."""
  return [
    f'{_PAPERS}.{package}.{module}'
    for package, names in _MODULES.items()
    for module in names
  ]


def statements() -> tuple[Statement, ...]:
  """Returns all statements by id, which begins with a key of `PAPERS`.

  >>> sorted({s.id[:2] for s in statements()}) == list(PAPERS)
  True
  """
  for name in modules():
    importlib.import_module(name)
  return tuple(_statements[name] for name in sorted(_statements))


def table() -> str:
  """Returns a Markdown table: a row a statement, with the label of each form.

  Its symbols are those of the paper for the function's arguments.

  >>> print(table().splitlines()[0])
  | id | function | printed | corrected | symbols | source |
  """
  lines = []
  for s in statements():
    module = s.function.__module__.removeprefix(f'{_PAPERS}.')
    labels = [s.labels.get(form, '') for form in FORMS]
    name = f'`{module}.{s.function.__name__}`'
    lines.append([s.id, name, *labels, s.symbols, s.source])
  return markdown.table(['id', 'function', *FORMS, 'symbols', 'source'], lines)
