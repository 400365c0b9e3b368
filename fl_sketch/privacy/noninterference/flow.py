"""Follow labels through a jaxpr, operation by operation.

A result depends on all arguments of its operation; that of a branch or a loop
also on what decided it. An operation with an inner program that is not known
raises `InterferenceError`.
Tested with JAX 0.10 and 0.11: names of primitives and their parameters.
"""

from collections.abc import Mapping, Sequence
import contextlib
import pathlib
import types
from typing import Any, NamedTuple

from fl_sketch.rounds import marks
from fl_sketch.utils import UserError
from jax.extend import core

DATA, NOISE, MIXED, CHANGED = 'data', 'noise', 'mixed', 'changed'
SCALE = 'scale'
# Results of their inner programs depend on arguments of the operation alone.
_CLOSED = (
  'reduce', 'reduce_window', 'scatter', 'scatter-add', 'scatter-mul',
  'scatter-min', 'scatter-max', 'scatter_sub', 'select_and_gather_add',
  'select_and_scatter', 'custom_linear_solve',
)  # fmt: skip
_LIBRARY = str(pathlib.Path(__file__).parents[2])
_TO_HOST = ('callback', 'infeed', 'outfeed', 'debug_print', 'ffi_call')
# They pass their arguments on, one by one.
_SAME = ('optimization_barrier',)
_WRITES = ('swap', 'addupdate')
_REFERENCES = ('new_ref', 'get', 'freeze', *_WRITES)


class InterferenceError(UserError, ValueError):
  """Data of clients reach, or may reach, a public value without noise."""


class Origin(NamedTuple):
  """The operations from an argument to a value: a linked list."""

  argument: str
  eqn: core.JaxprEqn | None = None
  before: 'Origin | None' = None

  def after(self, eqn: core.JaxprEqn) -> 'Origin':
    """Return the origin of a result of this operation."""
    return Origin(self.argument, eqn, self)


class Value(NamedTuple):
  """What is known of a value; without labels it depends on public values."""

  labels: Mapping[str, Origin] = types.MappingProxyType({})
  rows: Any = None  # of data that are not MIXED: `rows.Rows`
  part: Any = None  # of what a release consists of: `releases.Part`
  number: Any = None  # what it is equal to: `numbers.Number`
  cell: Any = None  # of a mutable array: a list with the value in it


class Leak(NamedTuple):
  """A place that must not depend on a label, and does."""

  place: str
  label: str
  origin: Origin


PUBLIC = Value()


class Walk:
  """One walk through a program, which collects `leaks` to the host.

  Subclasses know more of values than their labels, by the methods `result`,
  `constant`, `step_of`, `stacked` and `carried`.
  """

  def __init__(self):
    self.leaks: list[Leak] = []
    self.path: tuple[int, ...] = ()  # of operations with the present program
    self.cells: list[list[Value]] = []  # of mutable arrays
    # By path and id: of programs' arguments and of operations' results.
    self.types: dict[tuple[int, ...], Sequence[Value]] = {}

  def run(
    self,
    jaxpr: core.Jaxpr | core.ClosedJaxpr,
    values: Sequence[Value],
    decided: Value = PUBLIC,
  ) -> list[Value]:
    """Return the values of a jaxpr's results from those of its arguments.

    `decided` is what decides whether the program runs.
    """
    consts = getattr(jaxpr, 'consts', ())
    jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
    env = dict(zip(jaxpr.invars, values, strict=True))
    self.types[*self.path, id(jaxpr)] = values
    if consts:
      pairs = zip(jaxpr.constvars, consts, strict=True)
      env |= {var: self.constant(x) for var, x in pairs}

    def read(x):
      if isinstance(x, core.Literal):
        return self.constant(x.val)
      return env.get(x, PUBLIC)

    for eqn in jaxpr.eqns:
      results = self._apply(eqn, [read(x) for x in eqn.invars], decided)
      self.types[*self.path, id(eqn)] = results
      env.update(zip(eqn.outvars, results, strict=True))
    return [read(x) for x in jaxpr.outvars]

  def constant(self, value: Any) -> Value:
    """Return what is known of a constant of the program."""
    del value
    return PUBLIC

  def result(self, eqn, out: int, values: Sequence[Value]) -> Value:
    """Return a result of an operation without an inner program."""
    del out
    return passed(eqn, joined(values))

  def step_of(self, eqn, value: Value) -> Value:
    """Return one step of an array that is scanned."""
    del eqn
    return value

  def stacked(self, eqn, value: Value) -> Value:
    """Return what a scan stacks from a value of each step."""
    del eqn
    return value

  def carried(self, eqn, n: int, old: Value | None, new: Value) -> Value:
    """Return the carry of a step from that of the last one and its result."""
    del eqn, n
    return new if old is None else joined([old, new])

  @contextlib.contextmanager
  def within(self, eqn, values):
    """Enter the inner program of an operation."""
    del values
    self.path, before = (*self.path, id(eqn)), self.path
    yield
    self.path = before

  def _apply(self, eqn, values, decided):
    name = eqn.primitive.name
    inner = list(core.jaxprs_in_params(eqn.params))
    if name in ('scan', 'while', 'cond'):
      with self.within(eqn, values):
        return getattr(self, f'_{name}')(eqn, values, decided)
    if inner and name not in _CLOSED:
      with self.within(eqn, values):
        return self._call(eqn, inner, values, decided)
    if name in _SAME:
      return values
    if name in _REFERENCES:
      return self._of_reference(eqn, values, decided)
    if _acts_on_host(eqn):
      labels = joined([*values, decided]).labels
      for label in {DATA, NOISE} & labels.keys():
        origin = labels[label].after(eqn)
        self.leaks.append(Leak(f'the host, by {name}', label, origin))
    for sub in inner:
      self.run(sub, [joined(values)] * len(sub.invars), decided)
    return [self.result(eqn, n, values) for n in range(len(eqn.outvars))]

  def _of_reference(self, eqn, values, decided):
    """Read or write a mutable array, which has one value for all entries."""
    if eqn.primitive.name == 'new_ref':
      self.cells.append([values[0]])
      return [PUBLIC._replace(cell=self.cells[-1])]
    cell, given = values[0].cell, values[1:]
    old = cell[0]
    if eqn.primitive.name in _WRITES:
      cell[0] = self.chosen(decided, [old, *given])
    return [passed(eqn, self.chosen(PUBLIC, [old, *given]))] * len(eqn.outvars)

  def _call(self, eqn, inner, values, decided):
    sizes = [(len(x.invars), len(x.outvars)) for x in inner]
    if sizes != [(len(eqn.invars), len(eqn.outvars))]:
      return self._unknown(eqn, values)
    return [passed(eqn, x) for x in self.run(inner[0], values, decided)]

  def _unknown(self, eqn, values):
    raise InterferenceError(
      f'Non-interference is not known of the operation {eqn.primitive.name!r}'
      f' in {where(eqn)}: write it with other operations of JAX.'
    )

  def _scan(self, eqn, values, decided):
    program = next(core.jaxprs_in_params(eqn.params))
    consts, carry = eqn.params['num_consts'], eqn.params['num_carry']
    xs = [self.step_of(eqn, x) for x in values[consts + carry :]]

    def body(state):
      return self.run(program, [*values[:consts], *state, *xs], decided)

    state = values[consts : consts + carry]
    if eqn.params['length'] == 1:
      results = body(state)
      state = results[:carry]
    else:
      state, results = self._fixpoint(eqn, state, body)
    ys = [self.stacked(eqn, y) for y in results[carry:]]
    return [passed(eqn, x) for x in [*state, *ys]]

  def _while(self, eqn, values, decided):
    p = eqn.params
    test, consts = p['cond_nconsts'], p['cond_nconsts'] + p['body_nconsts']

    def body(state):
      (again,) = self.run(p['cond_jaxpr'], [*values[:test], *state], decided)
      within = joined([decided, again])
      new = self.run(p['body_jaxpr'], [*values[test:consts], *state], within)
      return [self.chosen(again, [x]) for x in new]

    state, _ = self._fixpoint(eqn, values[consts:], body)
    return [passed(eqn, x) for x in state]

  def _cond(self, eqn, values, decided):
    chosen, *values = values
    within = joined([decided, chosen])
    branches = [self.run(x, values, within) for x in eqn.params['branches']]
    results = [self.chosen(chosen, x) for x in zip(*branches, strict=True)]
    return [passed(eqn, x) for x in results]

  def chosen(self, by: Value, values: Sequence[Value]) -> Value:
    """Return the value of a result that is one of several."""
    return joined(values, [by])

  def _fixpoint(self, eqn, state, body):
    """Return the carry that is stable, and the results of its step."""
    before = self.saved()
    state = [self.carried(eqn, n, None, x) for n, x in enumerate(state)]
    while True:
      self.restore(before)
      contents = [x for cell in self.cells for x in cell]
      results = body(state)
      pairs = zip(state, results, strict=False)
      new = [self.carried(eqn, n, *x) for n, x in enumerate(pairs)]
      after = [x for cell in self.cells for x in cell][: len(contents)]
      if _kinds([*new, *after]) == _kinds([*state, *contents]):
        return state, results
      state = new

  def saved(self):
    """Return what a further pass through a loop starts from."""
    return len(self.leaks)

  def restore(self, before):
    """Forget what one pass through a loop found."""
    del self.leaks[before:]


def where(eqn: core.JaxprEqn, users: bool = False) -> str | None:
  """Return the line that made an operation, as FILE:LINE; None: unknown.

  With `users` it returns None unless a file outside of libraries has the line.
  """
  line = None
  traceback = eqn.source_info.traceback  # innermost first, of the program
  for frame in [] if traceback is None else traceback.frames:
    place = f'{pathlib.Path(frame.file_name).name}:{frame.line_num}'
    if frame.file_name == marks.__file__:
      continue
    if frame.file_name.startswith(_LIBRARY):
      line = line or place
    elif 'site-packages' not in frame.file_name:
      return place
  return None if users else line


def is_of_library(eqn: core.JaxprEqn) -> bool:
  """Return whether the library made an operation, not code that uses it."""
  traceback = eqn.source_info.traceback
  for frame in [] if traceback is None else traceback.frames:
    if frame.file_name.startswith(_LIBRARY):
      if frame.file_name != marks.__file__:
        return True
    elif 'site-packages' not in frame.file_name:
      return False
  return False


def _kinds(values):
  return [(x.labels.keys(), x.rows, x.part, x.number) for x in values]


def _acts_on_host(eqn) -> bool:
  named = lambda effect: type(effect).__name__ == 'NamedAxisEffect'
  to_host = any(part in eqn.primitive.name for part in _TO_HOST)
  return to_host or not all(map(named, eqn.effects))


def joined(values: Sequence[Value], by: Sequence[Value] = ()) -> Value:
  """Return the labels of a result that depends on `values` and `by`."""
  labels = {}
  for value in reversed([*values, *by]):  # the first origin of each is kept
    labels |= dict(value.labels)
  return Value(labels)


def passed(eqn, value: Value) -> Value:
  """Return the value, one operation further from its arguments."""
  return value._replace(
    labels={k: x.after(eqn) for k, x in value.labels.items()}
  )
