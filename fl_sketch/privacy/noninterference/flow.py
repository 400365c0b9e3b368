"""Follow clients' data through a jaxpr, operation by operation.

A result depends on all arguments of its operation; that of a branch or a loop
also on what decided it. Data end at a mark `released` alone. An operation with
an inner program that is not known raises `InterferenceError`. The axis of
clients is followed, too, to see where their rows mix.
Tested with JAX 0.10 and 0.11: names of primitives and their parameters.
"""

from collections.abc import Mapping, Sequence
import math
import pathlib
import types
from typing import NamedTuple

from fl_sketch.rounds import marks
from fl_sketch.utils import UserError
from jax.extend import core

DATA, NOISE, MIXED = 'data', 'noise', 'mixed'
Axis = int | None  # slices along it are of one client each; None: unknown
# Results of their inner programs depend on arguments of the operation alone.
_CLOSED = (
  'reduce', 'reduce_window', 'scatter', 'scatter-add', 'scatter-mul',
  'scatter-min', 'scatter-max', 'scatter_sub', 'select_and_gather_add',
  'select_and_scatter', 'custom_linear_solve',
)  # fmt: skip
_CUMULATIVE = ('cumsum', 'cumprod', 'cummax', 'cummin', 'cumlogsumexp')
# Their results may have the shape of the argument, but other rows.
_MOVED = ('gather', 'scatter', 'dynamic_slice', 'dynamic_update_slice', 'pad')
_LIBRARY = str(pathlib.Path(__file__).parents[2])
_TO_HOST = ('callback', 'infeed', 'outfeed', 'debug_print', 'ffi_call')


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
  """What a value of the program depends on; no label: public values alone."""

  # Of DATA, NOISE (the secret key) and MIXED (data of several clients).
  labels: Mapping[str, Origin] = types.MappingProxyType({})
  axis: Axis = None


class Leak(NamedTuple):
  """A place that must not depend on a label, and does."""

  place: str
  label: str
  origin: Origin


PUBLIC = Value()


class Walk:
  """One walk through a program, which collects `leaks` to the host."""

  def __init__(self):
    self.leaks: list[Leak] = []
    self.releases = 0  # marks that ended data

  def run(
    self,
    jaxpr: core.Jaxpr | core.ClosedJaxpr,
    values: Sequence[Value],
    decided: Value = PUBLIC,
  ) -> list[Value]:
    """Return the values of a jaxpr's results from those of its arguments.

    `decided` is what decides whether the program runs.
    """
    jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
    env = dict(zip(jaxpr.invars, values, strict=True))

    def read(x):
      return PUBLIC if isinstance(x, core.Literal) else env.get(x, PUBLIC)

    for eqn in jaxpr.eqns:
      results = self._apply(eqn, [read(x) for x in eqn.invars], decided)
      env.update(zip(eqn.outvars, results, strict=True))
    return [read(x) for x in jaxpr.outvars]

  def _apply(self, eqn, values, decided):
    name, primitive = eqn.primitive.name, eqn.primitive
    if primitive is marks.RELEASED:
      self._release(eqn, values[0].labels)
      return [PUBLIC]
    if primitive is marks.BY_CLIENT:
      return [values[0]._replace(axis=eqn.params['axis'])]
    inner = list(core.jaxprs_in_params(eqn.params))
    if name in ('scan', 'while', 'cond'):
      return getattr(self, f'_{name}')(eqn, values, decided)
    if inner and name not in _CLOSED:
      return self._call(eqn, inner, values, decided)
    if _acts_on_host(eqn):
      labels = _joined([*values, decided]).labels
      for label in {DATA, NOISE} & labels.keys():
        origin = labels[label].after(eqn)
        self.leaks.append(Leak(f'the host, by {name}', label, origin))
    for sub in inner:
      self.run(sub, [_joined(values)] * len(sub.invars), decided)
    return [_result(eqn, values)] * len(eqn.outvars)

  def _release(self, eqn, labels):
    """Count a release; one without noise of the secret key is a leak."""
    if DATA in labels and NOISE not in labels:
      self.leaks.append(Leak('a release', DATA, labels[DATA].after(eqn)))
    self.releases += bool(labels)

  def _call(self, eqn, inner, values, decided):
    sizes = [(len(x.invars), len(x.outvars)) for x in inner]
    if sizes != [(len(eqn.invars), len(eqn.outvars))]:
      return self._unknown(eqn, values)
    return [_passed(eqn, x) for x in self.run(inner[0], values, decided)]

  def _unknown(self, eqn, values):
    raise InterferenceError(
      f'Non-interference is not known of the operation {eqn.primitive.name!r}'
      f' in {where(eqn)}: write it with other operations of JAX.'
    )

  def _scan(self, eqn, values, decided):
    program = next(core.jaxprs_in_params(eqn.params))
    # Constants, the carry, then scanned arrays, which have one rank more.
    carry = _same_rank(eqn.outvars, program.outvars)
    first = _same_rank(eqn.invars, program.invars)
    # Their axis of steps may be the axis of clients.
    xs = [x._replace(axis=None) for x in values[first:]]

    def body(state):
      return self.run(program, [*values[: first - carry], *state, *xs], decided)

    results = self._fixpoint(values[first - carry : first], body)
    ys = [y._replace(axis=None) for y in results[carry:]]
    return [_passed(eqn, x) for x in [*results[:carry], *ys]]

  def _while(self, eqn, values, decided):
    p = eqn.params
    test, consts = p['cond_nconsts'], p['cond_nconsts'] + p['body_nconsts']

    def body(state):
      (again,) = self.run(p['cond_jaxpr'], [*values[:test], *state], decided)
      within = _joined([decided, again])
      new = self.run(p['body_jaxpr'], [*values[test:consts], *state], within)
      return [_joined([x], [again]) for x in new]

    return [_passed(eqn, x) for x in self._fixpoint(values[consts:], body)]

  def _cond(self, eqn, values, decided):
    chosen, *values = values
    within = _joined([decided, chosen])
    branches = [self.run(x, values, within) for x in eqn.params['branches']]
    results = [_joined(xs, [chosen]) for xs in zip(*branches, strict=True)]
    return [_passed(eqn, x) for x in results]

  def _fixpoint(self, state, body):
    """Return the values of a loop's results, from a state that is stable."""
    before = self.releases, len(self.leaks)
    kinds = lambda values: [(x.labels.keys(), x.axis) for x in values]
    while True:
      self.releases, leaks = before
      del self.leaks[leaks:]
      results = body(state)
      new = [_joined(pair) for pair in zip(state, results, strict=False)]
      if kinds(new) == kinds(state):
        return state + results[len(state) :]
      state = new


def where(eqn: core.JaxprEqn, users: bool = False) -> str | None:
  """Return the line that made an operation, as FILE:LINE; None: unknown.

  With `users` it returns None unless a file outside of libraries has the line.
  """
  line = None
  traceback = eqn.source_info.traceback  # innermost first, of the program
  for frame in [] if traceback is None else traceback.frames:
    place = f'{pathlib.Path(frame.file_name).name}:{frame.line_num}'
    if frame.file_name.startswith(_LIBRARY):
      line = line or place
    elif 'site-packages' not in frame.file_name:
      return place
  return None if users else line


def _same_rank(outer, inner) -> int:
  """Count variables that have the same rank in the body of a loop."""
  pairs = zip(outer, inner, strict=True)
  return sum(x.aval.ndim == y.aval.ndim for x, y in pairs)


def _acts_on_host(eqn) -> bool:
  named = lambda effect: type(effect).__name__ == 'NamedAxisEffect'
  to_host = any(part in eqn.primitive.name for part in _TO_HOST)
  return to_host or not all(map(named, eqn.effects))


def _joined(values, by=()) -> Value:
  """Return the value of a result that depends on `values` and `by`."""
  labels = {}
  for value in reversed([*values, *by]):  # the first origin of each is kept
    labels |= dict(value.labels)
  axes = {x.axis for x in values if DATA in x.labels}
  return Value(labels, axes.pop() if len(axes) == 1 else None)


def _passed(eqn, value) -> Value:
  """Return the value, one operation further from its arguments."""
  return value._replace(
    labels={k: x.after(eqn) for k, x in value.labels.items()}
  )


def _result(eqn, values) -> Value:
  labels = _passed(eqn, _joined(values)).labels
  if DATA not in labels:
    return Value(labels)
  axes = [x.axis if DATA in x.labels else None for x in values]
  axis = axis_after(eqn, axes)
  if isinstance(axis, str):
    return Value({**labels, MIXED: labels[DATA]})
  return Value(labels, axis)


def axis_after(eqn: core.JaxprEqn, axes: list[Axis]) -> Axis | str:
  """Return the axis of clients in a result, or `MIXED`.

  `axes` are those of the arguments with data. An operation that surely combines
  rows of several clients gives `MIXED`; where the axis is lost, it is None.
  """
  if _is_collective(eqn):
    return MIXED
  with_axis = [(n, axis) for n, axis in enumerate(axes) if axis is not None]
  if not with_axis:
    return None
  (n, axis), params = with_axis[0], eqn.params
  name, shape = eqn.primitive.name, getattr(eqn.invars[n].aval, 'shape', ())
  out = getattr(eqn.outvars[0].aval, 'shape', ())
  mixed = lambda dims: MIXED if axis in dims else axis
  if (name.startswith('reduce_') and 'axes' in params) or name[:3] == 'arg':
    dims = params['axes']
    return MIXED if axis in dims else axis - sum(d < axis for d in dims)
  if name == 'broadcast_in_dim':
    return params['broadcast_dimensions'][axis]
  if name == 'transpose':
    return params['permutation'].index(axis)
  if name == 'squeeze':
    return axis - sum(d < axis for d in params['dimensions'])
  if name == 'reshape':
    return _reshaped(shape, out, axis)
  if name == 'slice':
    return axis if out[axis] == shape[axis] else MIXED
  if name == 'rev':
    return mixed(params['dimensions'])
  if name in _CUMULATIVE:
    return mixed([params['axis']])
  if name in ('concatenate', 'sort'):
    return mixed([params['dimension']])
  if name == 'dot_general':
    contracted = params['dimension_numbers'][0][n]
    return MIXED if axis in contracted else None
  if name == 'gather':
    mapped = params['dimension_numbers'].start_index_map
    return MIXED if axis in mapped else None
  same = {a for a in axes if a is not None} == {axis} and out == shape
  return axis if same and not name.startswith(_MOVED) else None


def _is_collective(eqn) -> bool:
  """Return whether it combines values of several shards."""
  named = any(type(e).__name__ == 'NamedAxisEffect' for e in eqn.effects)
  return named and eqn.primitive.name not in ('pvary', 'pcast')


def _reshaped(shape, out, axis) -> Axis:
  before = math.prod(shape[:axis])
  for n, size in enumerate(out):
    if size == shape[axis] and math.prod(out[:n]) == before:
      return n
  return None
