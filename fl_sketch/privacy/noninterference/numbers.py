"""What public values and keys are equal: expressions of a program's arguments.

Two values with one number are equal in every run. Of keys and counters it is
also known along which axes, and in which loops, their entries differ: noise of
such a key is drawn anew.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch.privacy.noninterference import rows
import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

# Axes by their index, loops by the object that stands for them, ROUND. Entries
# of a `fresh` value differ for any two sets of indices of these together.
Where = frozenset[Any]
ROUND, NOWHERE = 'round', frozenset()
ANY_AXIS = frozenset(range(32))


class Number:
  """One expression; equal ones are one object of a `Table`."""

  def __init__(
    self, op: str, params: Any = (), args: Sequence['Number'] = (), *,
    fresh: Where = NOWHERE, varies: Where = NOWHERE, secret: bool = False,
    zero: bool = False,
  ):  # fmt: skip
    self.op, self.params, self.args = op, params, tuple(args)
    self.fresh = fresh  # its entries along these differ from one another
    self.varies = varies | fresh  # they may differ
    self.secret = secret  # whether it is the secret root, or keys made of it
    self.zero = zero
    self.value: np.ndarray | None = None  # of a literal


class Table:
  """The numbers of one program."""

  def __init__(self):
    self.known: dict[Any, Number] = {}

  def of(self, op: str, params: Any, args: Sequence[Number], **more) -> Number:
    """Return the number of an expression."""
    key = op, params, *map(id, args)
    if key not in self.known:
      self.known[key] = Number(op, params, args, **more)
    return self.known[key]

  def literal(self, value: Any) -> Number:
    """Return the number of a constant."""
    is_key = jnp.issubdtype(
      getattr(value, 'dtype', np.float32), jax.dtypes.extended
    )
    if is_key or np.size(value) > 16:
      axes = frozenset(range(np.ndim(value)))
      return self.of('array', id(value), (), varies=axes)
    value = np.asarray(value)
    axes = frozenset(range(value.ndim))
    text = str(value.dtype), value.shape, value.tobytes()
    zero = not np.any(value)
    number = self.of('literal', text, (), varies=axes, zero=zero)
    number.value = value
    return number

  def step(self, of: Number, loop: Any) -> Number:
    """Return the number of a step of an array that a loop scans."""

    def moved(places):
      inner = {x - 1 if isinstance(x, int) else x for x in places - {0}}
      return frozenset(inner | ({loop} if 0 in places else set()))

    return self.of(
      'step', loop, [of], fresh=moved(of.fresh), secret=of.secret,
      varies=moved(of.varies) | {loop}, zero=of.zero,
    )  # fmt: skip

  def result(
    self, eqn: core.JaxprEqn, out: int, args: Sequence[Number]
  ) -> Number:
    """Return the number of a result of an operation."""
    name = eqn.primitive.name
    if name == 'random_wrap' and args[0].op == 'random_unwrap':
      return args[0].args[0]
    if name in _PASSED:
      return args[0]
    params = out, tuple(map(_hashable, eqn.params.items()))
    ndim = getattr(eqn.outvars[out].aval, 'ndim', 0)
    return self.of(
      name, params, args, fresh=_fresh(eqn, args, ndim),
      varies=_varies(eqn, args, ndim),
      secret=name in _OF_KEYS and args[0].secret,
      zero=name in _LAYOUT and args[0].zero,
    )  # fmt: skip


# Equal on all devices, or of one argument's value.
_PASSED = ('pvary', 'copy', 'copy_p')
_LAYOUT = (
  'broadcast_in_dim', 'convert_element_type', 'reshape', 'reshard', 'slice',
  'squeeze', 'transpose', 'sharding_constraint',
)  # fmt: skip
_OF_KEYS = (
  *_LAYOUT, 'random_fold_in', 'random_split', 'random_wrap', 'gather',
  'dynamic_slice',
)  # fmt: skip


def is_chained(after: Number | None, before: Number) -> bool:
  """Return whether a key was derived from another one, in one way."""
  steps = 0
  while after is not None and after is not before and after.secret:
    steps += after.op in ('random_fold_in', 'random_split')
    after = after.args[0] if after.args else None
  return after is before and steps > 0


def counts(after: Number | None, before: Number) -> bool:
  """Return whether a value is another one plus a constant other than 0."""
  if after is None or after.op not in ('add', 'sub'):
    return False
  first, second = after.args
  return first is before and second.op == 'literal' and not second.zero


# Where entries of their arguments are equal, those of their results are.
_EVEN = {
  *rows.ELEMENTWISE, *_LAYOUT, 'gather', 'reduce_and', 'reduce_max',
  'reduce_min', 'reduce_or', 'reduce_prod', 'reduce_sum',
}  # fmt: skip


def _hashable(item):
  try:
    hash(item)
  except TypeError:
    return item[0], id(item[1])
  return item


def _moved(eqn, n, places) -> Where | None:
  """Follow axes of an argument to a result; None: not all of them."""
  rule, out = rows.RULES.get(eqn.primitive.name), set()
  ndim = getattr(eqn.invars[n].aval, 'ndim', 0)
  if rule is None:
    return None
  for place in places:
    if not isinstance(place, int):
      out.add(place)
    elif place >= ndim:  # an unknown number varies along any axis
      continue
    elif (axes := rule(eqn, n, (place,))) is None:
      return None
    else:
      out |= {*axes}
  return frozenset(out)


def _varies(eqn, args, ndim) -> Where:
  everywhere = frozenset(range(ndim))
  loops = {x for arg in args for x in arg.varies if not isinstance(x, int)}
  moved = [_moved(eqn, n, arg.varies) for n, arg in enumerate(args)]
  if None in moved or eqn.primitive.name not in _EVEN:
    return everywhere | loops
  return frozenset().union(*filter(None, moved))


def _fresh(eqn, args, ndim) -> Where:
  name = eqn.primitive.name
  if name == 'iota':
    return frozenset({eqn.params['dimension']})
  if name in ('add', 'sub'):  # a + b is equal for many pairs
    x, y = args
    return (x.fresh - y.varies) or (y.fresh - x.varies)
  if name == 'random_fold_in':
    key, number = args
    apart = not (key.fresh & number.varies and number.fresh & key.varies)
    return key.fresh | number.fresh if apart else key.fresh
  if name == 'random_split':
    own = range(eqn.invars[0].aval.ndim, ndim)
    return args[0].fresh | frozenset(own)
  if name == 'distinct':
    return args[0].fresh | frozenset(range(ndim))
  if name in ('dynamic_slice', 'gather'):  # one of them, if it is always one
    fixed = not any(arg.varies for arg in args[1:])
    loops = {x for x in args[0].fresh if not isinstance(x, int)}
    return frozenset(loops) if fixed else NOWHERE
  if name == 'convert_element_type' and not _is_wider(eqn):
    return NOWHERE
  if name in _LAYOUT or name == 'random_wrap':
    kept = [_moved(eqn, 0, {place}) for place in args[0].fresh]
    return frozenset().union(*(x for x in kept if x is not None))
  return NOWHERE


def _is_wider(eqn) -> bool:
  """Return whether a conversion between integer types is injective."""
  x, y = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
  whole = all(jnp.issubdtype(z, jnp.integer) for z in (x, y))
  return whole and x.itemsize <= y.itemsize


# Operations by which scales of noise are computed.
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
  'add': np.add, 'convert_element_type': lambda x: x, 'div': np.divide,
  'exp': np.exp, 'log': np.log, 'max': np.maximum, 'min': np.minimum,
  'mul': np.multiply, 'neg': np.negative, 'pow': np.power, 'sub': np.subtract,
  'rsqrt': lambda x: x**-0.5, 'sqrt': np.sqrt, 'square': np.square,
  'broadcast_in_dim': lambda x: x, 'reshape': lambda x: x,
}  # fmt: skip


def value_of(number: Number, known: Mapping[str, Any]) -> float | None:
  """Compute a scalar from known arguments; None: it is not one."""
  if number.op == 'argument':
    return known.get(number.params)
  if number.value is not None:
    return float(number.value) if number.value.ndim == 0 else None
  args = [value_of(x, known) for x in number.args]
  if None in args or not args:
    return None
  if number.op == 'integer_pow':
    return args[0] ** dict(number.params[1])['y']
  fn = _ARITHMETIC.get(number.op)
  return None if fn is None else float(fn(*args))
