"""LoRA: trains factors of low rank beside frozen weights.

`lora` splits the parameters of a model into trained and frozen ones, `join`
puts both together again, and `merge` makes the model's own parameters of them.
"""

from collections.abc import Callable, Sequence
import fnmatch
import functools
from typing import Any, NamedTuple

from fl_sketch.utils import fields, registry
from fl_sketch.utils.types import Key, Params, Tree
import flax.linen as nn
import jax
import jax.numpy as jnp

_name = functools.partial(jax.tree_util.keystr, simple=True, separator='/')


class Adapter(NamedTuple):
  """A kernel and its factors; a leaf that belongs to another tree is None."""

  base: jax.Array | None = None  # W, f32[in, out]
  a: jax.Array | None = None  # f32[in, rank]
  b: jax.Array | None = None  # f32[rank, out]


class Lora(NamedTuple):
  """Parameters in two trees, each None where the other has an array."""

  trainable: Tree  # by clients or, of `Adapter.base`, by the server
  frozen: Tree
  scale: float  # alpha / rank


def lora(
  params: Params,
  key: Key,
  *,
  rank: fields.Count,
  alpha: fields.Positive | None = None,
  targets: tuple[str, ...] = ('kernel',),
  trainable: tuple[str, ...] = (),
  parts: tuple[str, ...] = ('a', 'b'),
) -> Lora:
  r"""Add factors to kernels, and split the parameters.

  :math:`x W + \frac{\alpha}{r} (x A) B`, with :math:`A_{ij} \sim N(0, 1 / n)`
  for n inputs and B = 0 at first: the paper's :math:`W x + \frac{\alpha}{r} B A
  x`, transposed as the kernels of flax are.

  Args:
    params: of a model, or their shapes.
    key: of A.
    rank: r, of all kernels.
    alpha: None is the rank.
    targets: patterns of kernels, the arrays of two axes, by successive names
      in their paths, such as `attention` or `block_*/mlp_in`.
    trainable: such patterns of other arrays, which are trained whole.
    parts: of an `Adapter`, those that are in the trainable tree.

  Raises ValueError if a pattern matches nothing, or the rank is too large.

  Source: Hu et al., ICLR 2022, arXiv:2106.09685, section 4.1; the A of their
  code is uniform.
  """
  leaves = {_name(path): x for path, x in jax.tree.leaves_with_path(params)}
  is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
  kernels = [k for k, x in leaves.items() if len(x.shape) == 2 and is_float(x)]
  adapted = _matched('targets', targets, kernels, 'a kernel')
  for name in adapted:
    if rank > min(leaves[name].shape):
      raise ValueError(f'{rank=} exceeds that of {name} {leaves[name].shape}.')
  others = [name for name in leaves if name not in adapted]
  whole = _matched('trainable', trainable, others, 'another array')
  if not adapted | whole:
    raise ValueError(f'{targets=} and {trainable=} name no array; set one.')
  count = {name: i for i, name in enumerate(leaves)}

  def divide(params, key):
    def take(mine, path, leaf):
      if (name := _name(path)) not in adapted:
        return leaf if (name in whole) == mine else None
      a = draw(key, count[name], (len(leaf), rank), leaf.dtype)
      adapter = Adapter(leaf, a, jnp.zeros((rank, leaf.shape[1]), leaf.dtype))
      absent = {k: None for k in Adapter._fields if (k in parts) != mine}
      return adapter._replace(**absent)

    both = (functools.partial(take, mine) for mine in (True, False))
    return tuple(jax.tree.map_with_path(one, params) for one in both)

  shapes = any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves.values())
  run = functools.partial(jax.eval_shape, divide) if shapes else divide
  mine, rest = run(params, key)
  return Lora(mine, rest, scale_of(rank, alpha))


def scale_of(rank: int, alpha: float | None = None) -> float:
  """Return alpha / rank; alpha None is the rank."""
  return (alpha or rank) / rank


REGISTRY = registry.Registry('lora', context=('parts',), leading=2)
describe = REGISTRY.describe
# Which factors clients train, and whether the server changes the kernels. 'ffa'
# is that of Sun et al., ICLR 2024, arXiv:2403.12313.
KINDS = {
  'naive': ('a', 'b'), 'ffa': ('b',), 'flora': Adapter._fields,
  'fedex': Adapter._fields,
}  # fmt: skip
for _kind, _parts in KINDS.items():
  REGISTRY.register(functools.partial(lora, parts=_parts), name=_kind)


def make(*, kind: str, params: Params, key: Key, **options: Any) -> Lora:
  """Split parameters for an aggregation of `KINDS`; options as of `lora`."""
  REGISTRY.check(kind, options)
  return REGISTRY.entry(kind).factory(params, key, **options)


def draw(
  key: Key,
  count: int,
  shape: Sequence[int],
  dtype: jnp.dtype | type = jnp.float32,
) -> jax.Array:
  """Draw the factor A number `count`, f32[in, rank], of variance 1 / in."""
  normal = jax.random.normal(jax.random.fold_in(key, count), shape, dtype)
  return normal / shape[0] ** 0.5


def split(params: Tree) -> tuple[Tree, Tree]:
  """Split a tree into what clients train, and the kernels of adapters."""
  trained = lambda x: x._replace(base=None) if is_adapter(x) else x
  base = lambda x: Adapter(x.base) if is_adapter(x) else None
  return tuple(
    jax.tree.map(part, params, is_leaf=is_adapter) for part in (trained, base)
  )


def join(frozen: Tree, trainable: Tree) -> Tree:
  """Return the tree that takes each array from the tree that has it."""
  pick = lambda x, y: y if x is None else x
  return jax.tree.map(pick, frozen, trainable, is_leaf=lambda x: x is None)


def beside(fn: Callable[..., Any], frozen: Tree) -> Callable[..., Any]:
  """Make a function of the trained parameters of fn(params, ...)."""

  @functools.wraps(fn)
  def run(trainable, *args, **kwargs):
    return fn(join(frozen, trainable), *args, **kwargs)

  return run


def merge(params: Tree, scale: float) -> Params:
  """Return the model's own parameters, with W + scale A B for each adapter."""
  whole = lambda x: x.base + scale * (x.a @ x.b) if is_adapter(x) else x
  return jax.tree.map(whole, params, is_leaf=is_adapter)


def factored(fn: Callable[..., Any], scale: float) -> Callable[..., Any]:
  """Make a function of parameters with adapters: fn of `merge`, up to rounding.

  A `linen.Dense` layer adds scale (x A) B to its output, so that no array of a
  client is as large as the kernel. Other kernels are merged: those of other
  libraries, and within lifted transforms of flax, such as `nn.remat`.
  """

  @functools.wraps(fn)
  def run(params, *args, **kwargs):
    merged = merge(params, scale)
    adapters = jax.tree.leaves(params, is_leaf=is_adapter)
    both = zip(jax.tree.leaves(merged), adapters, strict=True)
    known = {id(x): adapter for x, adapter in both if is_adapter(adapter)}

    def call(layer, args, kwargs, context):
      module = context.module
      if isinstance(module, nn.Dense) and context.method_name == '__call__':
        layer_params = module.variables.get('params', {})
        adapter = known.get(id(layer_params.get('kernel')))
        if adapter is not None:
          return _dense(module, layer_params, adapter, scale, *args, **kwargs)
      return layer(*args, **kwargs)

    with nn.intercept_methods(call):
      return fn(merged, *args, **kwargs)

  return run


def _dense(module, layer_params, adapter, scale, inputs):
  alone = module.clone(parent=None)
  y = alone.apply({'params': {**layer_params, 'kernel': adapter.base}}, inputs)
  return y + (scale * ((inputs @ adapter.a) @ adapter.b)).astype(y.dtype)


def is_adapter(x: Tree) -> bool:
  """Return whether a node of a tree is an `Adapter`."""
  return isinstance(x, Adapter)


def _matched(option, patterns, names, what) -> set[str]:
  matched = set()
  for pattern in patterns:
    matching = [x for x in names if fnmatch.fnmatch(f'/{x}/', f'*/{pattern}/*')]
    if not matching:
      raise ValueError(
        f'{option} must match {what}: {pattern!r} matches none of {names[:8]}.'
      )
    matched.update(matching)
  return matched
