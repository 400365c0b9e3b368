"""Where the rows of clients are in a value: a table of rules by primitive.

A rule says on which axes of a result the axes of clients are; None: an
operation combines rows of several clients. Operations without a rule do.
Tested with JAX 0.10 and 0.11: names of primitives and their parameters.
"""

from collections.abc import Callable, Collection, Sequence
import math
from typing import Any, NamedTuple

from jax.extend import core

Axes = tuple[int, ...]


class Rows(NamedTuple):
  """The clients of a value: slices along `axes` are of one client each."""

  axes: Axes = ()  # () is a value of one client
  span: tuple[int, int] | None = None  # of clients, along a single axis
  loops: tuple[int, ...] = ()  # scans over clients, of which it is one step
  untouched: bool = False  # whether no operation has combined its entries
  lanes: bool = False  # whether it is of one client a lane of `marks.by_lane`


def after(
  eqn: core.JaxprEqn, out: int, rows: Sequence[Rows | None]
) -> Rows | None:
  """Return the rows of a result; None: of several clients, or unknown.

  `rows` are those of the arguments, None for arguments without clients' data.
  """
  found = [(n, x) for n, x in enumerate(rows) if x is not None]
  name, first = eqn.primitive.name, found[0][1]
  untouched = len(found) == 1 and first.untouched and name in _UNTOUCHED
  if all(x.axes == () and x.loops == first.loops for _, x in found):
    spans = {x.span for _, x in found} - {None}
    span = spans.pop() if spans else None
    lanes = any(x.lanes for _, x in found)
    made = Rows((), span, first.loops, untouched, lanes)
    return None if spans else made
  if name == 'concatenate' and first.axes == (eqn.params['dimension'],):
    return _joined(eqn, rows)
  rule = RULES.get(name)
  if rule is None:
    return None
  moved = {rule(eqn, n, x.axes) for n, x in found}
  same = {(x.span, x.loops) for _, x in found}
  if None in moved or len(moved) > 1 or len(same) > 1:
    return None
  axes: Any = moved.pop()
  return Rows(axes, _span(eqn, out, first), first.loops, untouched)


def by_id(eqn: Any, rows: Sequence[Rows | None]) -> Rows | None:
  """Return rows that a cohort takes from, or puts into, those of all clients.

  The operation is a gather or scatter at the ids of the cohort's clients.
  """
  given = (rows[0], *rows[2:])  # without the ids
  if any(x and x.axes != (0,) for x in given):
    return None
  return Rows((0,), (0, eqn.outvars[0].aval.shape[0]))


def _joined(eqn, rows) -> Rows | None:
  """Concatenate rows of clients that follow one another, then public rows."""
  known = [x for x in rows if x is not None]
  start = end = known[0].span and known[0].span[0]
  sizes = [x.aval.shape[known[0].axes[0]] for x in eqn.invars]
  for n, row in enumerate(rows):
    if row is None:
      if n < len(known):
        return None
    elif row.span is None or row._replace(span=None) != known[0]._replace(
      span=None
    ):
      return None
    elif row.span[0] != end or row.span[1] - row.span[0] > sizes[n]:
      return None
    else:
      end = row.span[1]
  return None if start is None else known[0]._replace(span=(start, end))


def _span(eqn, out, rows) -> tuple[int, int] | None:
  """Return the clients of a result whose axis of clients may be cut."""
  if rows.span is None or len(rows.axes) != 1:
    return rows.span
  (axis,), (low, high) = rows.axes, rows.span
  name, params = eqn.primitive.name, eqn.params
  start, size = 0, high - low
  if name == 'slice':
    start = params['start_indices'][axis]
    size = params['limit_indices'][axis] - start
  elif name == 'split' and params['axis'] == axis:
    start, size = sum(params['sizes'][:out]), params['sizes'][out]
  elif name == 'pad':
    size += min(params['padding_config'][axis][1], 0)
  return min(low + int(start), high), min(low + int(start + size), high)


Rule = Callable[[core.JaxprEqn, int, Axes], tuple[Any, ...] | None]


def _each(fn: Callable[[core.JaxprEqn, int, int], int | None]) -> Rule:
  """Make a rule of a function of (operation, argument, one axis)."""

  def rule(eqn, n, axes):
    moved = tuple(fn(eqn, n, axis) for axis in axes)
    return None if None in moved else moved

  return rule


def _kept_unless(mixes: Callable[[Any, int, Any], bool]) -> Rule:
  """Make a rule that keeps an axis unless mixes(parameters, axis, argument)."""
  return _each(
    lambda eqn, n, axis: (
      None if mixes(eqn.params, axis, eqn.invars[n].aval) else axis
    )
  )


def less(axis: int, dims: Collection[int]) -> int:
  """Return an axis after axes that are gone."""
  return axis - sum(d < axis for d in dims)


def _reduced(eqn, n, axis):
  dims = eqn.params['axes']
  return None if axis in dims else less(axis, dims)


def _squeezed(eqn, n, axis):
  dims = eqn.params['dimensions']
  return None if axis in dims else less(axis, dims)


def _broadcast(eqn, n, axis):
  to = eqn.params['broadcast_dimensions'][axis]
  shape = eqn.invars[n].aval.shape
  return to if eqn.params['shape'][to] == shape[axis] else None


def _reshaped(eqn, n, axes):
  """Follow neighbouring axes of clients, which may be split or merged."""
  shape, out = eqn.invars[n].aval.shape, eqn.outvars[0].aval.shape
  first, last = min(axes), max(axes) + 1
  if len(axes) != last - first:
    return None
  before, size = math.prod(shape[:first]), math.prod(shape[first:last])
  starts = [i for i in range(len(out)) if math.prod(out[:i]) == before]
  for start in reversed(starts):
    for end in range(start + 1, len(out) + 1):
      if math.prod(out[start:end]) == size:
        return tuple(range(start, end))
  return None


def _dot(eqn, n, axis):
  contracted, batch = eqn.params['dimension_numbers']
  if axis in contracted[n]:
    return None
  if axis in batch[n]:
    return batch[n].index(axis)
  bound = [{*contracted[k], *batch[k]} for k in (0, 1)]
  of_left = eqn.invars[0].aval.ndim - len(bound[0])
  return len(batch[0]) + n * of_left + less(axis, bound[n])


def _convolved(eqn, n, axis):
  numbers = eqn.params['dimension_numbers']
  is_batch = n == 0 and numbers.lhs_spec[0] == axis
  is_plain = eqn.params['batch_group_count'] == 1
  return numbers.out_spec[0] if is_batch and is_plain else None


def _gathered(eqn, n, axis):
  numbers = eqn.params['dimension_numbers']
  offsets = numbers.offset_dims
  out = eqn.outvars[0].aval.ndim
  batch = [d for d in range(out) if d not in offsets]
  if n == 1:
    return batch[axis] if axis < len(batch) else None
  if axis in numbers.operand_batching_dims:
    k = numbers.operand_batching_dims.index(axis)
    return batch[numbers.start_indices_batching_dims[k]]
  size = eqn.invars[0].aval.shape[axis]
  whole = eqn.params['slice_sizes'][axis] == size
  if axis in numbers.start_index_map or not whole:
    return None
  gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
  return offsets[less(axis, gone)]


def _scattered(eqn, n, axis):
  numbers = eqn.params['dimension_numbers']
  batching = numbers.operand_batching_dims
  aligned = numbers.scatter_indices_batching_dims
  if n == 0:
    return None if axis in numbers.scatter_dims_to_operand_dims else axis
  if n == 1:
    return batching[aligned.index(axis)] if axis in aligned else None
  window = numbers.update_window_dims
  if axis not in window:
    outer = less(axis, window)
    return batching[aligned.index(outer)] if outer in aligned else None
  gone = {*numbers.inserted_window_dims, *batching}
  shape = eqn.invars[0].aval.shape
  kept = [d for d in range(len(shape)) if d not in gone]
  to = kept[window.index(axis)]
  whole = shape[to] == eqn.invars[2].aval.shape[axis]
  return (
    to if whole and to not in numbers.scatter_dims_to_operand_dims else None
  )


def _windowed(params, axis, _):
  trivial = params['window_dimensions'][axis] == 1
  strides = params.get('window_strides') or [1] * (axis + 1)
  padding = params.get('padding') or [(0, 0)] * (axis + 1)
  return not trivial or strides[axis] != 1 or any(padding[axis])


def _updated(eqn, n, axis):
  shapes = [x.aval.shape for x in eqn.invars[:2]]
  return axis if n < 2 and shapes[0][axis] == shapes[1][axis] else None


def _padded(params, axis, _):
  low, _, inner = params['padding_config'][axis]
  return low != 0 or inner != 0


def _strided(params, axis, _):
  strides = params['strides']
  return strides is not None and strides[axis] != 1


_SAME = _each(lambda eqn, n, axis: axis)
# Entries of their results depend on the same entries of their arguments.
ELEMENTWISE = (
  'abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e '
  'bessel_i1e by_client cbrt ceil clamp clz complex conj convert_element_type '
  'copy copy_p cos cosh device_put digamma distinct div eq erf erf_inv erfc '
  'exp exp2 expm1 floor ge gt igamma igammac imag integer_pow is_finite le '
  'lgamma log log1p logistic lt max min mul name ne neg nextafter not or '
  'polygamma population_count pow pvary random_fold_in random_unwrap '
  'random_wrap real reduce_precision rem reshard round rsqrt select_n '
  'sharding_constraint shift_left shift_right_arithmetic shift_right_logical '
  'sign sin sinh sqrt square stop_gradient sub tan tanh threefry2x32 xor'
).split()


def _named(names: str, rule: Rule) -> dict[str, Rule]:
  return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
  **dict.fromkeys(ELEMENTWISE, _SAME),
  **_named('random_bits random_split', _SAME),  # new axes are last
  **_named(
    'argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod '
    'reduce_sum reduce_xor', _each(_reduced),
  ),
  **_named(
    'cumsum cumprod cummax cummin cumlogsumexp',
    _kept_unless(lambda params, axis, _: axis == params['axis']),
  ),
  **_named(
    'cholesky eigh svd qr lu triangular_solve householder_product',
    _kept_unless(lambda _, axis, x: axis >= x.ndim - 2),
  ),
  **_named(
    'reduce_window reduce_window_max reduce_window_min reduce_window_sum '
    'select_and_scatter_add', _kept_unless(_windowed),
  ),
  **_named(
    'scatter scatter-add scatter-mul scatter-min scatter-max scatter_sub',
    _each(_scattered),
  ),
  'bitcast_convert_type': _SAME,  # a new axis, if any, is last
  'broadcast_in_dim': _each(_broadcast),
  'concatenate': _kept_unless(lambda p, axis, _: axis == p['dimension']),
  'conv_general_dilated': _each(_convolved),
  'dot_general': _each(_dot),
  'dynamic_slice': _kept_unless(
    lambda p, axis, x: not x.ndim or p['slice_sizes'][axis] != x.shape[axis]
  ),
  'dynamic_update_slice': _each(_updated),
  'fft': _kept_unless(
    lambda p, axis, x: axis >= x.ndim - len(p['fft_lengths'])
  ),
  'gather': _each(_gathered),
  'pad': _kept_unless(_padded),
  'reshape': _reshaped,
  'rev': _kept_unless(lambda params, axis, _: axis in params['dimensions']),
  'slice': _kept_unless(_strided),
  'sort': _kept_unless(lambda params, axis, _: axis == params['dimension']),
  'split': _SAME,
  'squeeze': _each(_squeezed),
  'stack': _each(lambda eqn, n, axis: axis + (axis >= eqn.params['axis'])),
  'top_k': _kept_unless(
    lambda p, axis, x: axis == p.get('axis', -1) % x.ndim
  ),
  'transpose': _each(lambda eqn, n, x: eqn.params['permutation'].index(x)),
}  # fmt: skip
# They choose, place or change entries one by one.
_UNTOUCHED = {
  *ELEMENTWISE, 'broadcast_in_dim', 'dynamic_slice', 'gather', 'pad', 'reshape',
  'slice', 'split', 'squeeze', 'transpose',
}  # fmt: skip
