"""Check that replicated parameters and state stay equal on all workers.

It follows the program of an update from the gradients, which differ by worker,
through loops and branches, where the types of `jax.shard_map` stop at a loop
that starts from what is shared.
"""

from fl_sketch.distributed import bills, sharded
from fl_sketch.privacy.noninterference import flow
from fl_sketch.utils.types import Params, Tree
import jax
import optax


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
  tx: optax.GradientTransformation, params: Params, mesh: bills.Mesh,
  specs: Tree, of_state: Tree,
):  # fmt: skip
  """Raise ValueError if an update would move copies of an array apart.

  `of_state` are the `PartitionSpec`s of the state. Only the axes of the workers
  are looked at, over which `tx` sends: a loop may average over others by
  itself, and along those that jit shards there is one value.
  """
  traced = bills.traced_update(tx, params, mesh, specs)
  program, (_, state, params) = traced
  of_params, of_rows = _axes(specs, params), _axes(of_state, state)
  sent = bills.bytes_per_step(tx, params, mesh, specs).by_axis
  inner = sharded.axes_of(specs)
  over = {a for a in sent if a not in inner and mesh.shape[a] > 1}
  updates, rows, waiting = _walked(program, over, of_params, of_rows)
  if waiting & over:
    raise ValueError(
      'tx lets each worker decide by its own gradient whether it sends, as '
      'optax.apply_if_finite around mean_over does: the others would wait. Put '
      'it behind mean_over.'
    )
  if text := _first('update of params', params, updates, of_params, over):
    raise ValueError(
      f'Devices would update their copies of an array apart: the {text}. Give '
      'each array a mean_over (optax.partition, not optax.masked).'
    )
  if text := _first('state', state, rows, of_rows, over):
    raise ValueError(
      f'{text}, and all would keep one copy. Put its part behind mean_over, or '
      'in distributed.per_worker(part, axis).'
    )


def _walked(program, over, of_params, of_rows):
  """Return labels of updates and state, and the axes along which some wait."""
  params = [_apart(x) for x in of_params]
  grads = [_apart(over)] * len(params)
  # Rows of workers are equal at first: those that differ are found.
  sharded = set().union(*of_params)
  rows = [_apart(x & sharded) for x in of_rows]
  kinds = lambda values: [x.labels.keys() for x in values]
  while True:
    walk = _Walk()
    out = walk.run(program, [*grads, *rows, *params])
    pairs = zip(rows, out[len(params) :], strict=True)
    new = [flow.joined(pair) for pair in pairs]
    if kinds(new) == kinds(rows):
      return out[: len(params)], rows, walk.waiting
    rows = new


def _first(name, tree, values, allowed, over) -> str:
  """Say which leaf is the first that differs where it must not."""
  rows = zip(jax.tree.leaves_with_path(tree), values, allowed, strict=True)
  for (path, _), value, axes in rows:
    if apart := (value.labels.keys() & over) - axes:
      path = jax.tree_util.keystr(path)
      return f'{name}{path} differs by worker over {", ".join(sorted(apart))}'
  return ''


def _axes(specs, tree) -> list[set[str]]:
  """Return the mesh axes over which each leaf of a tree is split."""
  leaves = jax.tree.leaves(jax.tree.broadcast(specs, tree))
  return [{*sharded.axes_of(spec)} for spec in leaves]


def _apart(axes) -> flow.Value:
  return flow.Value({a: flow.Origin(a) for a in axes})
