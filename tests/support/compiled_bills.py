"""Bytes that a program compiled for CPUs sends, from its text of HLO.

The reference for `bills.bytes_per_step`, which reads types before XLA merges
collectives and widens what it has no type for: on CPU bfloat16 travels as
float32.
"""

import math
import re

from fl_sketch.distributed import bills
import jax
import numpy as np

_DTYPES = dict(pred='bool', s='int', u='uint', f='float', c='complex')
_CALLS = (
  r'(?:branch_computations|(?:true|false)_computation|body|condition|calls|'
  r'to_apply|called_computations)=(\{[^}]*\}|[%\w.-]+)'
)


def collective_bytes(compiled: jax.stages.Compiled) -> bills.Bytes:
  """Count the bytes of the collectives of a program compiled for CPUs."""
  shardings = compiled.input_shardings, compiled.output_shardings
  meshes = [getattr(x, 'mesh', None) for x in jax.tree.leaves(shardings)]
  mesh = next((x for x in meshes if x is not None), None)
  return of_text(compiled.as_text(), mesh)


def of_text(text: str, mesh: bills.Mesh | None) -> bills.Bytes:
  """Count the bytes of a program's text, over the axes of its mesh."""
  return bills._bill(_compiled(text, mesh))


def _compiled(text, mesh) -> list[bills.Collective]:
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
      if re.match('all-|reduce-scatter|collective-', opcode):
        rows += _of_instruction(result, opcode, rest, devices, mesh)
      elif opcode == 'conditional':
        rows += bills._branches(found[::-1] if 'true_comp' in rest else found)
      else:
        n = re.search(r'"known_trip_count":\{"n":"(\d+)"', rest)
        loop = 'loop' * (opcode == 'while' and n is None)
        for x in found:
          rows += bills._repeated(x, int(n[1]) if n else 1, loop)
    return rows

  return rows_of(entry)


def _of_instruction(result, opcode, rest, devices, mesh):
  groups = [x for x in _groups(rest, devices) if len(set(x)) > 1]
  if not groups:
    return []
  result = re.sub(r'\{[^}]*\}', '', result)  # layouts
  arrays = re.findall(r'([a-z]\w*)\[([\d,]*)\]', result)
  name = opcode.replace('-', '_')
  if name == 'all_to_all' and arrays[1:]:  # an array for each worker
    arrays = [(arrays[0][0], f'{len(arrays)},{arrays[0][1]}')]
  rows, n = [], len(groups[0])
  for letters, sizes in arrays:
    shape = [int(x) for x in sizes.split(',') if x]
    if name in ('all_gather', 'reduce_scatter'):
      i = int(re.findall(r'dimensions=\{(\d+)', rest)[0])
      shape[i] = shape[i] // n if name == 'all_gather' else shape[i] * n
    b, kind, bits = re.findall(r'(b?)(pred|.)(\d*)', letters)[0]
    dtype = b + _DTYPES[kind] + bits
    size = max(int(bits or 8) // 8, 1)
    rows.append(
      bills._row(name, dtype, shape, _axes(groups, devices, mesh), n, size)
    )
  return rows


def _groups(text, devices) -> list[list[int]]:
  """Devices that a collective joins; pairs of a permutation."""
  numbers = lambda x: [int(n) for n in re.findall(r'\d+', x)]
  if found := re.search(r'(?:groups|pairs)=\{((?:\{[\d, ]*\},?)*)\}', text):
    listed = [numbers(x) for x in found[1].split('}') if numbers(x)]
    return listed or [[*range(devices)]]
  if found := re.search(r'groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}', text):
    sizes = {k: int(n) for k, n in re.findall(r"'(\w+)'=(\d+)", found[1])}
    among = re.findall(r"'(\w+)'", found[2])
    ids = np.arange(math.prod(sizes.values())).reshape([*sizes.values()])
    order = sorted(range(len(sizes)), key=lambda i: [*sizes][i] in among)
    n = math.prod(n for k, n in sizes.items() if k in among)
    return ids.transpose(order).reshape(-1, n).tolist()
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
