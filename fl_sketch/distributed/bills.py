"""Bytes that a program sends, from the types of what it sends.

One worker of a group of n, which hands in s bytes, sends 2 (n - 1) / n s in an
all-reduce (a ring), (n - 1) s in an all-gather, (n - 1) / n s in an all-to-all
or a reduce-scatter, and s in a permutation.
"""

import collections
from collections.abc import Callable, Iterable
import functools
import math
import re
from typing import NamedTuple

from fl_sketch.utils import markdown
from fl_sketch.utils.types import Params, Tree
import jax
from jax.extend import core  # its jaxprs_in_params: tested with JAX 0.10
import optax

Mesh = jax.sharding.Mesh | jax.sharding.AbstractMesh
COPIES = jax.P()  # of parameters: all devices have them
_LAWS = {
  'all_reduce': lambda n, s: 2 * (n - 1) / n * s,
  'all_gather': lambda n, s: (n - 1) * s,
  'all_to_all': lambda n, s: (n - 1) / n * s, 'permute': lambda n, s: s,
  'reduce_scatter': lambda n, s: (n - 1) / n * s,
}  # fmt: skip
_NAMES: dict[str, str] = dict.fromkeys(('psum', 'pmax', 'pmin'), 'all_reduce')
_NAMES |= dict.fromkeys(('ppermute', 'collective_permute'), 'permute')
_CASTS = 'pvary', 'pcast', 'preduced', 'vary_unreduced_cast_p'  # send nothing


class Collective(NamedTuple):
  """One kind of array that a program sends, and how often; see `Bytes`."""

  operation: str  # of those above, as 'all_gather'
  dtype: str
  shape: tuple[int, ...]  # of what one worker hands in
  axes: tuple[str, ...]  # of the mesh
  bytes: float  # out of one worker, each time
  times: int = 1  # in a step
  within: str = ''  # 'branch 1'; 'loop' of unknown length, which counts once
  most: bool = True  # counted in `out`: not in a cheaper branch
  least: bool = True  # counted in `least`: not in a dearer branch


class Bytes(NamedTuple):
  """Bytes that one worker sends per step; `str` shows them as a table.

  An array that is sent over two axes at once counts on both, whole.
  """

  out: int  # with the dearest branch of each `lax.cond`
  least: int  # with the cheapest branch of each
  by_axis: dict[str, int]  # of `out`, in groups along an axis of the mesh
  collectives: tuple[Collective, ...]  # largest first; branches have own rows

  @property
  def largest_float(self) -> int:
    """The size of the largest array of floats that is sent; 0 without one."""
    rows = (x for x in self.collectives if 'float' in x.dtype)
    return max((math.prod(x.shape) for x in rows), default=0)

  def __str__(self) -> str:
    """Return a table in Markdown: a row for each kind of array."""
    head = 'operation', 'within', 'axes', 'dtype', 'shape', 'times', 'bytes'
    rows = []
    for x in self.collectives:
      total = x.bytes * x.times
      shape = ' x '.join(map(str, x.shape)) or 'scalar'
      share = f'{total / self.out:.1%}' if x.most else '-'
      line = x.operation, x.within, ', '.join(x.axes), x.dtype, shape
      rows.append([*line, f'{x.times}', f'{total:,.0f}', share])
    rows.append(['all', *[''] * 5, f'{self.out:,}', ''])
    return markdown.table([*head, 'share'], rows, left=5)


def bytes_per_step(
  tx: optax.GradientTransformation, params: Params, mesh: Mesh,
  specs: Tree = COPIES,
) -> Bytes:  # fmt: skip
  """Count the bytes of `tx.update` on a mesh, from the types of what is sent.

  Nothing runs: `params` may be shapes, and the mesh an `AbstractMesh`. What XLA
  adds is not seen.

  >>> import optax
  >>> mean = lambda g, _: jax.lax.pmean(g, 'data')
  >>> mesh = jax.sharding.AbstractMesh((4,), ('data',))
  >>> bytes_per_step(optax.stateless(mean), jax.numpy.ones(400), mesh).out
  2400

  The gradients that `tx` gets inside `jax.shard_map` have the types of
  `params`. `specs` is a `PartitionSpec` of the parameters, or a tree of them;
  by default all devices have copies.
  """
  params = shards(tx, params, mesh, specs)
  traced = functools.partial(
    jax.make_jaxpr, axis_env=[*mesh.shape.items()], return_shape=True
  )
  state = traced(tx.init)(params)[1]
  program = traced(tx.update)(params, state, params)[0]
  return _bill(_traced(program, dict(mesh.shape)))


def check_kinds(tx: object, mesh: object):
  """Raise TypeError unless these are a transformation and a mesh."""
  if not hasattr(tx, 'init'):
    raise TypeError(f'tx must be an optax transformation, got {type(tx)}.')
  if not isinstance(mesh, Mesh):
    raise TypeError(f'mesh must be a jax.sharding.Mesh, got {type(mesh)}.')


def shards(tx: object, params: Params, mesh: Mesh, specs: Tree) -> Params:
  """Return the types of a device's parts of the parameters of `tx`."""
  check_kinds(tx, mesh)
  params = jax.eval_shape(lambda x: x, params)

  def part(x, spec):
    sharding = jax.NamedSharding(mesh, spec)
    sharding.check_compatible_aval(x.shape)
    return jax.ShapeDtypeStruct(sharding.shard_shape(x.shape), x.dtype)

  return jax.tree.map(part, params, jax.tree.broadcast(specs, params))


def traced_bytes(program: Callable[..., Tree], *args: Tree) -> Bytes:
  """Count the bytes of a function with `jax.shard_map`, as `bytes_per_step`."""
  return _bill(_traced(jax.make_jaxpr(program)(*args), {}))


def _bill(rows: Iterable[Collective]) -> Bytes:
  times = collections.Counter()
  for x in rows:
    times[x._replace(times=1)] += x.times
  collectives = [x._replace(times=n) for x, n in times.items() if x.bytes]
  collectives.sort(key=lambda x: -x.bytes * x.times)
  along = lambda axis: [x for x in collectives if axis in x.axes]
  names = dict.fromkeys(axis for x in collectives for axis in x.axes)
  by_axis = {axis: _sum(along(axis)) for axis in names}
  out, least = _sum(collectives), _sum(collectives, 'least')
  return Bytes(out, least, by_axis, tuple(collectives))


def _sum(rows, which='most'):
  return round(sum(x.bytes * x.times for x in rows if getattr(x, which)))


def _repeated(rows, times, within=''):
  name = lambda x: ' in '.join(filter(None, [x.within, within]))
  return [x._replace(times=times * x.times, within=name(x)) for x in rows]


def _branches(branches):
  """Yield the rows of all branches; each sum counts those of one."""
  most = max(range(len(branches)), key=lambda i: _sum(branches[i]))
  least = min(range(len(branches)), key=lambda i: _sum(branches[i], 'least'))
  for i, rows in enumerate(branches):
    for x in _repeated(rows, 1, f'branch {i}'):
      yield x._replace(most=x.most and i == most, least=x.least and i == least)


def _row(name, dtype, shape, axes, n, itemsize) -> Collective:
  operation = _NAMES.get(name, name)
  if operation not in _LAWS:
    raise ValueError(f'The bytes of the collective {name!r} are not known.')
  sent = _LAWS[operation](n, math.prod(shape) * itemsize)
  return Collective(operation, dtype, tuple(shape), axes, float(sent))


def _traced(jaxpr, sizes) -> list[Collective]:
  rows = []
  for eqn in getattr(jaxpr, 'jaxpr', jaxpr).eqns:
    p, name = eqn.params, eqn.primitive.name
    axis_sizes = sizes | dict(p['mesh'].shape) if name == 'shard_map' else sizes
    parts = [_traced(x, axis_sizes) for x in core.jaxprs_in_params(p)]
    if name == 'cond':
      rows += _branches(parts)
    else:
      for x in parts:
        rows += _repeated(x, p.get('length', 1), 'loop' * (name == 'while'))
      rows += _of_eqn(eqn, p, sizes)
  return rows


def collective(eqn: core.JaxprEqn) -> tuple[str, tuple[str, ...]]:
  """Return the operation of an equation and its mesh axes, () without one."""
  axes = eqn.params.get('axes', eqn.params.get('axis_name', ()))
  axes = axes if isinstance(axes, tuple | list) else (axes,)
  name = eqn.primitive.name
  if name in _CASTS or name.endswith('_done'):
    axes = ()
  name = re.sub('unreduced_|_start|_invariant|_reduced', '', name)
  return _NAMES.get(name, name), tuple(x for x in axes if isinstance(x, str))


def _of_eqn(eqn, p, sizes):
  operation, axes = collective(eqn)
  n = math.prod(sizes[x] for x in axes)
  n = len((p.get('axis_index_groups') or [range(n)])[0])
  still = all(a == b for a, b in p.get('perm', [(0, 1)]))
  if n == 1 or still:
    return []
  types = [(x.aval.dtype, x.aval.shape) for x in eqn.invars]
  return [_row(operation, d.name, s, axes, n, d.itemsize) for d, s in types]
