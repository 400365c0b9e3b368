"""Bytes that a program sends: from its types, and from its compiled text.

One worker of a group of n, which hands in s bytes, sends 2 (n - 1) / n s in an
all-reduce (a ring), (n - 1) s in an all-gather, (n - 1) / n s in an all-to-all
or a reduce-scatter, and s in a permutation.
"""

import collections
from collections.abc import Callable, Iterable
import math
import re
from typing import Any, NamedTuple

from fl_sketch.utils import markdown
import jax
from jax.extend import core
import numpy as np

Mesh = jax.sharding.Mesh | jax.sharding.AbstractMesh
COPIES = jax.P()  # of parameters: all devices have them
_LAWS = {
  'all_reduce': lambda n, s: 2 * (n - 1) / n * s,
  'all_gather': lambda n, s: (n - 1) * s,
  'all_to_all': lambda n, s: (n - 1) / n * s, 'permute': lambda n, s: s,
  'reduce_scatter': lambda n, s: (n - 1) / n * s,
}  # fmt: skip
_NAMES = dict.fromkeys(('psum', 'pmax', 'pmin'), 'all_reduce')
_NAMES |= dict.fromkeys(('ppermute', 'collective_permute'), 'permute')
_FREE = ('axis_index', 'pvary', 'pcast', 'preduced', 'vary_unreduced_cast_p')
_DTYPES = dict(pred='bool', s='int', u='uint', f='float', c='complex')
_CALLS = (
  r'(?:branch_computations|(?:true|false)_computation|body|condition|calls|'
  r'to_apply|called_computations)=(\{[^}]*\}|[%\w.-]+)'
)


class Collective(NamedTuple):
  """One kind of array that a program sends, and how often; see `Bytes`."""

  operation: str  # of those above, as 'all_gather'
  dtype: str
  shape: tuple[int, ...]  # of what one worker hands in
  axes: tuple[str, ...]  # of the mesh; empty where a text does not tell
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
    """The size of the largest array of floats that is sent; 0 without one.

    A payload of several arrays is one of uint8, whatever is in it.
    """
    rows = (x for x in self.collectives if 'float' in x.dtype)
    return max((math.prod(x.shape) for x in rows), default=0)

  def table(self) -> str:
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

  __str__ = table


def bytes_per_step(
  tx: Any, params: Any, mesh: Mesh, specs: Any = COPIES
) -> Bytes:
  """Count the bytes of `tx.update` on a mesh, from the types of what is sent.

  Nothing runs: `params` may be shapes, and the mesh an `AbstractMesh`. What XLA
  adds is not seen; see `collective_bytes`.

  >>> import optax
  >>> mean = lambda g, _: jax.lax.pmean(g, 'data')
  >>> mesh = jax.sharding.AbstractMesh((4,), ('data',))
  >>> bytes_per_step(optax.stateless(mean), np.ones(400), mesh).out
  2400

  The gradients that `tx` gets inside `jax.shard_map` have the types of
  `params`, and the mesh has the axes that it names. `specs` is a
  `PartitionSpec` of the parameters, or a tree of them; by default all devices
  have copies. A collective that is not known raises ValueError.
  """

  def shards(spec, tree):
    one = jax.NamedSharding(mesh, spec).shard_shape
    part = lambda x: jax.ShapeDtypeStruct(one(x.shape), x.dtype)
    return jax.tree.map(part, tree)

  params = jax.tree.map(shards, specs, jax.eval_shape(lambda x: x, params))
  axes = [*mesh.shape.items()]
  state = jax.make_jaxpr(tx.init, axis_env=axes, return_shape=True)(params)[1]
  program = jax.make_jaxpr(tx.update, axis_env=axes)(params, state, params)
  return _bill(_traced(program, dict(axes)))


def traced_bytes(program: Callable[..., Any], *args: Any) -> Bytes:
  """Count the bytes of a function with `jax.shard_map`, as `bytes_per_step`."""
  return _bill(_traced(jax.make_jaxpr(program)(*args), {}))


def collective_bytes(
  compiled: jax.stages.Compiled | str, mesh: Mesh | None = None
) -> Bytes:
  """Count the bytes of the collectives of a compiled program, or of its text.

  XLA merges collectives, and sends wider numbers where it lacks a type: on CPU
  bfloat16 travels as float32. `compiled` is `jax.jit(fn).lower(...).compile()`,
  or its text of HLO. The mesh names the axes; by default it is that of
  arguments or results. Another text, or a collective that is not known, raises
  ValueError.
  """
  text = compiled if isinstance(compiled, str) else compiled.as_text()
  if not text or 'HloModule' not in text:
    raise ValueError('This is not the text of HLO: compile the program first.')
  if not isinstance(compiled, str):
    shardings = compiled.input_shardings, compiled.output_shardings
    meshes = [getattr(x, 'mesh', None) for x in jax.tree.leaves(shardings)]
    mesh = next((x for x in [mesh, *meshes] if x is not None), None)
  return _bill(_compiled(text, mesh))


def _bill(rows: Iterable[Collective]) -> Bytes:
  times = collections.Counter()
  for x in rows:
    times[x._replace(times=1)] += x.times
  kept = [x._replace(times=n) for x, n in times.items() if x.bytes]
  kept.sort(key=lambda x: -x.bytes * x.times)
  axes = {a: _sum(x for x in kept if a in x.axes) for x in kept for a in x.axes}
  return Bytes(_sum(kept), _sum(kept, 'least'), axes, tuple(kept))


def _sum(rows, which='most'):
  return round(sum(x.bytes * x.times for x in rows if getattr(x, which)))


def _repeated(rows, times, within=''):
  name = lambda x: ' in '.join(filter(None, [x.within, within]))
  return [x._replace(times=times * x.times, within=name(x)) for x in rows]


def _branches(found):
  """Rows of all branches; each sum counts those of one."""
  most = max(range(len(found)), key=lambda i: _sum(found[i]))
  least = min(range(len(found)), key=lambda i: _sum(found[i], 'least'))
  for i, rows in enumerate(found):
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
    known = sizes | dict(p['mesh'].shape) if name == 'shard_map' else sizes
    found = [_traced(x, known) for x in core.jaxprs_in_params(p)]
    if name == 'cond':
      rows += _branches(found)
    else:
      for x in found:
        rows += _repeated(x, p.get('length', 1), 'loop' * (name == 'while'))
      rows += _of_eqn(eqn, p, name, sizes)
  return rows


def _of_eqn(eqn, p, name, sizes):
  axes = p.get('axes', p.get('axis_name', ()))
  axes = axes if isinstance(axes, tuple | list) else (axes,)
  axes = tuple(x for x in axes if isinstance(x, str))
  n = math.prod(sizes[x] for x in axes)
  n = len((p.get('axis_index_groups') or [range(n)])[0])
  still = all(a == b for a, b in p.get('perm', [(0, 1)]))
  if n == 1 or still or name in _FREE or name.endswith('_done'):
    return []
  name = re.sub('unreduced_|_start|_invariant|_reduced', '', name)
  types = [(x.aval.dtype, x.aval.shape) for x in eqn.invars]
  return [_row(name, d.name, s, axes, n, d.itemsize) for d, s in types]


def _compiled(text, mesh) -> list[Collective]:
  bodies, name, entry = {}, '', ''
  for line in text.splitlines():
    if line.rstrip().endswith('{') and ' = ' not in line:
      is_entry, name = re.findall(r'(ENTRY )?%?([\w.-]+)', line)[0]
      bodies[name], entry = [], name if is_entry else entry
    elif name and (found := re.search(r' = (.*?) ([a-z][\w-]*)\((.*)', line)):
      bodies[name].append(found.groups())
  header = text.partition('\n')[0]
  counts = re.findall(r'(?:num_partitions|replica_count)=(\d+)', header)
  devices = math.prod(map(int, counts))

  def rows_of(name):
    rows = []
    for result, opcode, rest in bodies[name]:
      rest = re.sub(r'metadata=\{[^}]*\}', '', rest)
      calls = ' '.join(re.findall(_CALLS, rest))
      found = [rows_of(x) for x in re.findall(r'[\w.-]+', calls)]
      if opcode.endswith(('-done', '-update')):
        continue  # of a -start
      if re.match('all-|reduce-scatter|collective-|ragged-', opcode):
        rows += _of_instruction(result, opcode, rest, devices, mesh)
      elif opcode == 'conditional':
        rows += _branches(found[::-1] if 'true_comp' in rest else found)
      else:
        n = re.search(r'"known_trip_count":\{"n":"(\d+)"', rest)
        loop = 'loop' * (opcode == 'while' and n is None)
        for x in found:
          rows += _repeated(x, int(n[1]) if n else 1, loop)
    return rows

  return rows_of(entry)


def _of_instruction(result, opcode, rest, devices, mesh):
  groups = [x for x in _groups(rest, devices) if len(set(x)) > 1]
  if not groups:
    return []
  result = re.sub(r'\{[^}]*\}', '', result)  # layouts
  arrays = re.findall(r'([a-z]\w*)\[([\d,]*)\]', result)
  nested = re.match(r'\(\(([^)]*)', result)
  if opcode.endswith('-start') and (nested or opcode != 'all-reduce-start'):
    k = nested[1].count('[') if nested else int(result[0] == '(')
    arrays = arrays[k : 2 * k or None]  # operands come first
  name = opcode.removesuffix('-start').replace('-', '_')
  if name == 'all_to_all' and arrays[1:]:  # an array for each worker
    arrays = [(arrays[0][0], f'{len(arrays)},{arrays[0][1]}')]
  rows, n = [], len(groups[0])
  for letters, sizes in arrays:
    shape = [int(x) for x in sizes.split(',') if x]
    if name in ('all_gather', 'reduce_scatter'):
      i = int(re.findall(r'dimensions=\{(\d+)', rest)[0])
      shape[i] = shape[i] // n if name == 'all_gather' else shape[i] * n
    b, kind, bits, more = re.findall(r'(b?)(pred|.)(\d*)(.*)', letters)[0]
    dtype = b + _DTYPES[kind] + bits + '_' * bool(more) + more
    size = max(int(bits or 8) // 8, 1)
    rows.append(_row(name, dtype, shape, _axes(groups, devices, mesh), n, size))
  return rows


def _groups(text, devices) -> list[list[int]]:
  """Devices that a collective joins; pairs of a permutation."""
  numbers = lambda x: [int(n) for n in re.findall(r'\d+', x)]
  if found := re.search(r'(?:groups|pairs)=\{((?:\{[\d, ]*\},?)*)\}', text):
    listed = [numbers(x) for x in found[1].split('}') if numbers(x)]
    return listed or [[*range(devices)]]
  found = re.search(r'groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+))?', text)
  if not found:
    raise ValueError(f'Groups of devices are not known: {text[:99]}')
  shape, dims, order = (numbers(x or '') for x in found.groups())
  ids = np.arange(math.prod(dims)).reshape(dims).transpose(order or None)
  return ids.reshape(shape).tolist()


def _axes(groups, devices, mesh):
  """Axes of the mesh along which a group lies; () without a mesh."""
  if mesh is None or mesh.size != devices:
    return ()
  places = [np.unravel_index(x, mesh.axis_sizes) for x in groups]
  far = lambda i: any(np.ptp(x[i]) for x in places)
  return tuple(a for i, a in enumerate(mesh.axis_names) if far(i))
