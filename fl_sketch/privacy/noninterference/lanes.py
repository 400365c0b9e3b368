"""Follow the axis of clients through operations, to see where rows mix."""

import math

from jax.extend import core

Axis = int | None  # slices along it are of one client each; None: unknown
MIXED = 'mixed'
_CUMULATIVE = ('cumsum', 'cumprod', 'cummax', 'cummin', 'cumlogsumexp')
# Their results may have the shape of the argument, but other rows.
_UNKNOWN = ('gather', 'scatter', 'dynamic_slice', 'dynamic_update_slice', 'pad')


def after(eqn: core.JaxprEqn, axes: list[Axis]) -> Axis | str:
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
  return axis if same and not name.startswith(_UNKNOWN) else None


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
