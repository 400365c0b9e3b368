"""Counts the floating-point operations of a function in its jaxpr.

XLA's analysis counts the body of a loop once, and a round is made of loops:
over clients, over local steps, over blocks of a sketch.
"""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

# One operation for each element of the result.
_ELEMENTWISE = frozenset(
  """
  abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e
  cbrt ceil clamp conj cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1
  floor ge gt igamma integer_pow is_finite le lgamma log log1p logistic lt max
  min mul ne neg nextafter pow rem round rsqrt sign sin sinh sqrt square sub tan
  tanh
  """.split()
)
# One for each element of the operand.
_REDUCTIONS = frozenset(
  """
  argmax argmin cumlogsumexp cummax cummin cumprod cumsum pmax pmin psum
  psum_invariant reduce_max reduce_min reduce_prod reduce_sum
  """.split()
)
# None: these move numbers, or make them of bits.
_FREE = frozenset(
  """
  all_gather all_gather_invariant all_to_all bitcast_convert_type
  broadcast_in_dim complex concatenate convert_element_type copy copy_p
  device_put dynamic_slice dynamic_update_slice expand_dims gather imag iota
  name optimization_barrier pad pbroadcast pcast ppermute pvary random_bits real
  reduce_precision reshape rev scatter select_n sharding_constraint slice split
  squeeze stack stop_gradient transpose unstack
  """.split()
)
_CALLS = frozenset(
  """
  call checkpoint closed_call core_call custom_jvp_call custom_lin
  custom_vjp_call custom_vmap_call jit pjit remat remat2
  """.split()
)


class Flops(NamedTuple):
  """A number of operations, which is a lower bound if some are uncounted.

  Attributes:
    total: operations on all devices together.
    uncounted: primitives that make it a lower bound: a `while`, whose body is
      counted once, or a primitive without a rule.
  """

  total: int
  uncounted: frozenset[str] = frozenset()


def count(fn: Callable[..., Any], *args: Any) -> Flops:
  """Counts the operations of one call of `fn`, without running it.

  A product of [m, k] and [k, n] has 2 m n k; elementwise functions and
  reductions have one an element, a Fourier transform 5 n log2 n, a `scan` its
  body times its length, a `cond` its larger branch, and integer arithmetic
  none. A convolution does not count products with padding, nor with the zeros
  of dilation.

  >>> count(lambda a, b: a @ b, jnp.ones((2, 3)), jnp.ones((3, 5))).total
  60

  Args:
    fn: a function of arrays.
    *args: its arguments, or `jax.ShapeDtypeStruct` of them.
  """
  return of_jaxpr(jax.make_jaxpr(fn)(*args))


def of_jaxpr(jaxpr: Any) -> Flops:
  """Counts the operations of a jaxpr, as of `jax.jit(fn).trace(*args)`."""
  jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
  parts = [_of_equation(eqn) for eqn in jaxpr.eqns]
  uncounted = frozenset().union(*(part.uncounted for part in parts))
  return Flops(sum(part.total for part in parts), uncounted)


def _times(n: int, one: Flops) -> Flops:
  return Flops(n * one.total, one.uncounted if n else frozenset())


def _of_equation(eqn: core.JaxprEqn) -> Flops:
  name, params = eqn.primitive.name, eqn.params
  if name in _CALLS:
    names = 'jaxpr', 'call_jaxpr', 'call'
    return of_jaxpr(next(params[key] for key in names if key in params))
  if name == 'shard_map':
    return _times(params['mesh'].size, of_jaxpr(params['jaxpr']))
  if name == 'scan':
    return _times(params['length'], of_jaxpr(params['jaxpr']))
  if name == 'while':
    once = of_jaxpr(params['body_jaxpr'])
    also = frozenset([name] if once.total else [])
    return Flops(once.total, once.uncounted | also)
  if name == 'cond':
    branches = [of_jaxpr(branch) for branch in _branches(params)]
    uncounted = frozenset().union(*(branch.uncounted for branch in branches))
    return Flops(max(branch.total for branch in branches), uncounted)
  floats = [v.aval for v in (*eqn.invars, *eqn.outvars) if _is_float(v)]
  if not floats or name in _FREE:
    return Flops(0)
  return _of_primitive(name, eqn)


def _of_primitive(name, eqn) -> Flops:
  first, out = eqn.invars[0].aval, eqn.outvars[0].aval
  if name in _ELEMENTWISE:
    return Flops(out.size)
  if name in _REDUCTIONS:
    return Flops(sum(v.aval.size for v in eqn.invars if _is_float(v)))
  if name in ('scatter-add', 'scatter_add', 'scatter-mul', 'scatter_mul'):
    return Flops(eqn.invars[2].aval.size)
  if name.startswith('reduce_window_'):
    return Flops(out.size * math.prod(eqn.params['window_dimensions']))
  if name == 'select_and_scatter_add':
    return Flops(first.size * math.prod(eqn.params['window_dimensions']))
  if name == 'dot_general':
    (contracted, _), _ = eqn.params['dimension_numbers']
    return Flops(2 * out.size * math.prod(first.shape[i] for i in contracted))
  if name == 'conv_general_dilated':
    return Flops(_convolution(eqn))
  if name == 'fft':
    return Flops(_fourier(eqn))
  return Flops(0, frozenset([name]))


def _is_float(var) -> bool:
  dtype = getattr(var.aval, 'dtype', None)
  return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def _branches(params):
  """Returns the branches that this backend may take."""
  platforms = params.get('branches_platforms')
  if platforms is None:
    return params['branches']
  backend = jax.default_backend()
  aliases = {backend, 'cuda'} if backend == 'gpu' else {backend}
  named = [i for i, names in enumerate(platforms) if aliases & set(names or ())]
  return [params['branches'][named[0] if named else platforms.index(None)]]


def _convolution(eqn) -> int:
  left, right = (v.aval.shape for v in eqn.invars)
  out, p = eqn.outvars[0].aval.shape, eqn.params
  lhs, rhs, res = p['dimension_numbers']
  pairs = 1
  for i, (low, _) in enumerate(p['padding']):
    length, taps, hole = (
      left[lhs[2 + i]],
      right[rhs[2 + i]],
      p['lhs_dilation'][i],
    )
    # Positions of tap t of output o in the dilated input.
    starts = range(0, out[res[2 + i]] * (s := p['window_strides'][i]), s)
    offsets = range(0, taps * (r := p['rhs_dilation'][i]), r)
    at = (o + t - low for o in starts for t in offsets)
    last = (length - 1) * hole
    pairs *= sum(0 <= x <= last and x % hole == 0 for x in at)
  return 2 * out[res[0]] * out[res[1]] * right[rhs[1]] * pairs


def _fourier(eqn) -> int:
  lengths = eqn.params['fft_lengths']
  n = math.prod(lengths)
  real = {'RFFT', 'IRFFT'} & {eqn.params['fft_type'].name}
  shape = (eqn.outvars if real == {'IRFFT'} else eqn.invars)[0].aval.shape
  many = math.prod(shape[: -len(lengths)])
  full = 5 * many * n * math.log2(max(n, 1))
  return round(full / 2 if real else full)
