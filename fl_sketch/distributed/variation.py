"""Check that replicated parameters and state stay equal on all workers.

It follows the program of a step from the batch, which differs by worker,
through loops and branches, where the types of `jax.shard_map` stop at a loop
that starts from what is shared.
"""

from collections.abc import Sequence

from fl_sketch.distributed import bills, sharded
from fl_sketch.privacy.noninterference import flow
from fl_sketch.utils.types import Tree
import jax
from jax.extend import core


class _Walk(flow.Walk):
  """A walk through an update; a label is a mesh axis along which values differ.

  `waiting` are axes along which each worker decides by itself whether to send.
  """

  def __init__(self):
    super().__init__()
    self.waiting = set()

  def _apply(self, eqn, values, decided):
    operation, axes = bills.collective(eqn)
    if not axes:
      return super()._apply(eqn, values, decided)
    self.waiting |= {*axes} & decided.labels.keys()
    all_get = operation in ('all_reduce', 'all_gather')
    if all_get and not eqn.params.get('axis_index_groups'):
      labels = {a for x in values for a in x.labels} - {*axes}
      return [_apart(labels)] * len(eqn.outvars)
    return [flow.joined([*values, _apart(axes)])] * len(eqn.outvars)

  def _unknown(self, eqn, values):  # a kernel, which sends nothing
    return [flow.joined(values)] * len(eqn.outvars)


def check_copies(
  program: core.ClosedJaxpr, mesh: bills.Mesh, axes: Sequence[str],
  args: Sequence[Tree], of_state: Tree,
):  # fmt: skip
  """Raise ValueError if a step would move copies of an array apart.

  The program is a `jax.shard_map` over the axes of the workers, of (params,
  state, batch, what all share). `of_state` has a `PartitionSpec` for each array
  of the state. Along axes that jit shards there is one value.
  """
  over = {a for a in axes if mesh.shape[a] > 1}
  params, state, *_ = args
  of_rows = [
    {*sharded.axes_of(spec)}
    for spec in jax.tree.leaves(jax.tree.broadcast(of_state, state))
  ]
  (mapped,) = [e for e in program.eqns if e.primitive.name == 'shard_map']
  sizes = [len(jax.tree.leaves(x)) for x in args]
  new, rows, waiting = _walked(mapped.params['jaxpr'], over, sizes)
  if waiting & over:
    raise ValueError(
      'tx lets each worker decide by its own gradient whether it sends, as '
      'optax.apply_if_finite around mean_over does: the others would wait. Put '
      'it behind mean_over.'
    )
  none = [set()] * len(new)
  if text := _first('update of params', params, new, none, over):
    raise ValueError(
      f'Devices would update their copies of an array apart: the {text}. Give '
      'each array a mean_over over that axis (optax.partition, not '
      'optax.masked), and add nothing that a worker draws.'
    )
  if text := _first('state', state, rows, of_rows, over):
    raise ValueError(
      f'{text}, and all would keep one copy. Put its part behind mean_over, or '
      'in distributed.per_worker(part, axis).'
    )


def _walked(program, over, sizes):
  """Return labels of params and state, and the axes along which some wait."""
  of_params, of_state, of_batch, *of_shared = sizes
  batch = [_apart(over)] * of_batch
  shared = [flow.PUBLIC] * sum(of_shared)
  constants = [flow.PUBLIC] * (len(program.invars) - sum(sizes))
  # Rows of workers are equal at first: those that differ are found.
  params, rows = [flow.PUBLIC] * of_params, [flow.PUBLIC] * of_state
  kinds = lambda values: [x.labels.keys() for x in values]
  while True:
    walk = _Walk()
    out = walk.run(program, [*constants, *params, *rows, *batch, *shared])
    pairs = zip(rows, out[of_params : of_params + of_state], strict=True)
    new = [flow.joined(pair) for pair in pairs]
    if kinds(new) == kinds(rows):
      return out[:of_params], rows, walk.waiting
    rows = new


def _first(name, tree, values, allowed, over) -> str:
  """Say which leaf is the first that differs where it must not."""
  rows = zip(jax.tree.leaves_with_path(tree), values, allowed, strict=True)
  for (path, _), value, axes in rows:
    if apart := (value.labels.keys() & over) - axes:
      path = jax.tree_util.keystr(path)
      return f'{name}{path} differs by worker over {", ".join(sorted(apart))}'
  return ''


def _apart(axes) -> flow.Value:
  return flow.Value({a: flow.Origin(a) for a in axes})
