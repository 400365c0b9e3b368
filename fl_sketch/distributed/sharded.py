"""Parameters that jit shards over inner mesh axes, such as fsdp and tensor.

Workers are mapped over the other axes alone. XLA splits arrays and work along
the inner ones, as the specs of the parameters say. A compressor is mapped over
the inner axes as well: each device compresses its own part of every array, so
that no part travels before it is compressed.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from fl_sketch.distributed.engine import is_worker
from fl_sketch.rounds import axes as axes_lib
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import optax

Build = Callable[[tuple[str, ...]], optax.GradientTransformationExtraArgs]


def axes_of(specs: Tree) -> tuple[str, ...]:
  """Return the names of the mesh axes in a `PartitionSpec`, or a tree of them.

  >>> axes_of({'w': P(None, ('fsdp', 'tensor')), 'b': P('tensor')})
  ('tensor', 'fsdp')
  """
  parts = (part for spec in jax.tree.leaves(specs) for part in spec if part)
  return tuple(dict.fromkeys(a for part in parts for a in axes_lib.names(part)))


def cut(spec: P, axes: Iterable[str]) -> P:
  """Return what a spec says of these axes.

  >>> tuple(cut(P('slow', None, ('fsdp', 'tensor')), ('slow', 'tensor')))
  ('slow', None, 'tensor')
  """
  keep = lambda part: [a for a in axes_lib.names(part or ()) if a in axes]
  parts = [keep(part) or [None] for part in spec]
  return P(*(tuple(part) if len(part) > 1 else part[0] for part in parts))


def of_leaves(specs: Tree, tree: Tree) -> list[P]:
  """Return the spec of each leaf; of a tree that may lack arrays of `specs`."""
  known = dict(jax.tree.leaves_with_path(specs))

  def of(path):
    for i in range(len(path) + 1):
      if path[:i] in known:
        return known[path[:i]]
    raise ValueError(f'specs has none for params{jax.tree_util.keystr(path)}.')

  return [of(path) for path, _ in jax.tree.leaves_with_path(tree)]


def split(tree: Tree, labels: Sequence[Hashable]) -> dict[Any, Tree]:
  """Return a tree for each label, with None in place of other leaves."""
  leaves, treedef = jax.tree.flatten(tree)
  rows = [*zip(leaves, labels, strict=True)]
  pick = lambda label: [x if of == label else None for x, of in rows]
  return {
    label: treedef.unflatten(pick(label)) for label in dict.fromkeys(labels)
  }


def join(parts: Iterable[Tree], like: Tree) -> Tree:
  """Merge the trees that `split` returned, in the structure of `like`."""
  treedef = jax.tree.structure(like)
  rows = zip(*map(treedef.flatten_up_to, parts), strict=True)
  first = lambda row: next(x for x in row if x is not None)
  return treedef.unflatten(map(first, rows))


def by_shard(
  build: Build, specs: Tree
) -> optax.GradientTransformationExtraArgs:
  """Build a transformation that each device runs on its parts of arrays.

  `build` takes the inner axes over which the arrays it gets are split; arrays
  with other axes get a transformation of their own, and whole ones that of ().
  """
  kinds = {axes_of(spec) for spec in jax.tree.leaves(specs)}
  if len(kinds) == 1:
    tx = build(*kinds)
  else:
    tx = _grouped({kind: build(kind) for kind in sorted(kinds)}, specs)
  return _mapped(tx, specs) if any(kinds) else tx


def _grouped(built, specs) -> optax.GradientTransformationExtraArgs:
  """Give the arrays of each set of axes to a transformation, with its state."""
  labels = lambda tree: [axes_of(spec) for spec in of_leaves(specs, tree)]
  name = lambda kind: '_'.join(kind) or 'whole'

  def init(params) -> Any:
    parts = split(params, labels(params))
    return {name(kind): built[kind].init(x) for kind, x in parts.items()}

  def update(updates, state, params=None, **_) -> Any:
    of, new = labels(updates), {}
    parts = split(updates, of)
    own = {} if params is None else split(params, of)
    for kind, part in parts.items():
      key, tx = name(kind), built[kind]
      parts[kind], new[key] = tx.update(part, state[key], own.get(kind))
    return join(parts.values(), updates), new

  return optax.GradientTransformationExtraArgs(init, update)


def _mapped(tx, specs) -> optax.GradientTransformationExtraArgs:
  """Run a transformation in a `shard_map` over the inner axes, if in none."""
  inner = axes_of(specs)
  is_mapped = lambda: axes_lib.size_of(inner) is not None

  def on_inner(fn, *in_specs, out_specs):
    """Map fn inside a map over the workers."""
    known = jax.sharding.get_abstract_mesh().axis_names
    if missing := {*inner} - {*known}:
      raise ValueError(
        f'There is no mesh with {missing} here; use distributed.init and '
        'train_step, or a jax.shard_map of your own.'
      )
    return jax.shard_map(
      fn, in_specs=in_specs, out_specs=out_specs, axis_names={*inner},
      check_vma=False,
    )  # fmt: skip

  def of_params(tree):
    parts = [cut(spec, inner) for spec in of_leaves(specs, tree)]
    return jax.tree.structure(tree).unflatten(parts)

  def of_state(state):
    part = lambda x: cut(P(x.axes), inner) if is_worker(x) else P()
    return jax.tree.map(part, state, is_leaf=is_worker)

  def init(params) -> Any:
    if is_mapped():
      return tx.init(params)
    own = of_params(params)
    like = jax.eval_shape(on_inner(tx.init, own, out_specs=P()), params)
    return on_inner(tx.init, own, out_specs=of_state(like))(params)

  def update(updates, state, params=None, **_) -> Any:
    if is_mapped():
      return tx.update(updates, state, params)
    own, rows = of_params(updates), of_state(state)
    args = [updates, state] + [params] * (params is not None)
    in_specs = [own, rows, own][: len(args)]
    run = on_inner(tx.update, *in_specs, out_specs=(own, rows))
    return run(*args)

  return optax.GradientTransformationExtraArgs(init, update)


def laid(
  x: jax.Array, mesh: jax.sharding.Mesh, spec: P, axes: Iterable[str]
) -> jax.Array:
  """Split an array over those of `axes` that are Explicit, if it is not."""
  explicit = {*_axes_of_type(mesh, AxisType.Explicit)} & {*axes}
  now = getattr(jax.typeof(x).sharding, 'spec', P())

  def over(spec):  # without the empty end
    parts = [*cut(spec, explicit)]
    while parts and parts[-1] is None:
      parts.pop()
    return parts

  if over(now) == over(spec):
    return x
  return jax.sharding.reshard(x, NamedSharding(mesh, cut(spec, explicit)))


def placed(tree: Tree, mesh: jax.sharding.Mesh, specs: Tree) -> Tree:
  """Split arrays over the axes of a mesh as specs say, inside jit."""
  auto = _axes_of_type(mesh, AxisType.Auto)

  def place(x, spec):
    x = laid(x, mesh, spec, mesh.axis_names)
    sharding = NamedSharding(mesh, cut(spec, auto))
    return jax.lax.with_sharding_constraint(x, sharding) if auto else x

  return jax.tree.map(place, tree, jax.tree.broadcast(specs, tree))


def _axes_of_type(mesh, kind) -> list[str]:
  types = zip(mesh.axis_names, mesh.axis_types, strict=True)
  return [name for name, of in types if of == kind]
