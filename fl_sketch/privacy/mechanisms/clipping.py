"""Bounds on the L2 norm of a contribution that hold for any input.

Squares of numbers below 1e-19 or above 1e19 leave float32, and a norm in
bfloat16 is off by 1 %; neither weakens these bounds.
"""

from collections.abc import Callable
import functools

from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp

# Bounds are smaller than C by the largest error of a float32 sum of squares.
_SLACK = 1 - 1e-6


def clip_by_l2_norm(
  tree: Tree, max_norm: jax.Array | float, *, per_leaf: bool = False
) -> tuple[Tree, jax.Array]:
  r"""Clip a tree to L2 norm C, and return its norm before, f32[].

  :math:`u \min(1, C / \|u\|)`, over all leaves at once, real or complex, in
  float32 or better. With `per_leaf` each of L leaves is bounded by
  :math:`C / \sqrt L`, which bounds the whole by C.

  >>> clipped, norm = clip_by_l2_norm({'w': jnp.array([3.0, 4.0])}, 1.0)
  >>> clipped['w'].round(3), norm
  (Array([0.6, 0.8], dtype=float32), Array(5., dtype=float32))

  The norm is at most `max_norm * (1 + 1e-6)`, whatever the input; NaN and
  infinities count 0. A finite float32 tree within the bound is unchanged.
  """
  return _per_leaf(_clip, tree, max_norm) if per_leaf else _clip(tree, max_norm)


def normalize_by_l2_norm(
  tree: Tree, norm: jax.Array | float, *, per_leaf: bool = False
) -> tuple[Tree, jax.Array]:
  r"""Scale a tree to L2 norm C, :math:`C u / \|u\|`; a zero tree stays zero.

  Das et al., arXiv:2106.07094, equation 12, which leaves u = 0 undefined.
  Arguments, results and the bound on the norm are as of `clip_by_l2_norm`.

  >>> scaled, _ = normalize_by_l2_norm(jnp.array([3e-30, 4e-30]), 1.0)
  >>> scaled.round(3)
  Array([0.6, 0.8], dtype=float32)
  """
  if per_leaf:
    return _per_leaf(_normalize, tree, norm)
  return _normalize(tree, norm)


BOUNDS: dict[str, Callable[..., tuple[Tree, jax.Array]]] = {
  'clip': clip_by_l2_norm,
  'normalize': normalize_by_l2_norm,
}


def finite(tree: Tree) -> Tree:
  """Cast a tree to float32 or better, with 0 for non-finite numbers."""

  def clean(x):
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jnp.where(jnp.isfinite(x), x, 0)

  return jax.tree.map(clean, tree)


def _clip(tree, max_norm):
  unit, largest, length = _unit(tree)
  norm = largest * length
  out = _scaled(unit, _SLACK * max_norm / length)
  pick = lambda v, u: jnp.where(norm <= max_norm, u, v)
  return jax.tree.map(pick, out, finite(tree)), norm


def _normalize(tree, norm):
  unit, largest, length = _unit(tree)
  return _scaled(unit, _SLACK * norm / length), largest * length


def _per_leaf(bound, tree, max_norm):
  leaves, structure = jax.tree.flatten(tree)
  each = max_norm / len(leaves) ** 0.5
  bounded = [bound(x, each)[0] for x in leaves]
  _, largest, length = _unit(tree)
  return jax.tree.unflatten(structure, bounded), largest * length


@functools.partial(jax.jit, inline=True)  # traced once for all its callers
def _unit(tree):
  """Return (u / m, m, norm of u / m), m = max part of u; (0, 0, 1) at 0."""
  tree = finite(tree)
  tops = [jnp.abs(x).max(initial=0) for x in parts(tree)]
  largest = jnp.max(jnp.stack(tops))
  some = largest > 0
  # XLA may multiply by 1 / m, which is 0 for m above 8e37.
  shift = jnp.where(largest > 1, 2.0**-64, 2.0**64).astype(largest.dtype)
  safe = jnp.where(some, largest * shift, 1)
  over = lambda part: jnp.where(some, part * shift.astype(part.dtype) / safe, 0)
  unit = jax.tree.map(lambda x: _by_part(over, x), tree)
  squares = _sum(jnp.stack([_sum(jnp.square(x)) for x in parts(unit)]))
  return unit, largest, jnp.where(some, jnp.sqrt(squares), 1)


def _scaled(tree, scale):
  times = lambda part: part * scale.astype(part.dtype)
  return jax.tree.map(lambda x: _by_part(times, x), tree)


def _by_part(fn, x):
  # Complex arithmetic squares its operands, and may overflow.
  if jnp.iscomplexobj(x):
    return jax.lax.complex(fn(x.real), fn(x.imag))
  return fn(x)


def parts(tree: Tree) -> list[jax.Array]:
  """List all leaves, complex ones by their real and imaginary parts."""
  both = lambda x: (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
  return [part for x in jax.tree.leaves(tree) for part in both(x)]


def _sum(x):
  """Sum pairwise: the rounding grows with the logarithm of the length."""
  x = x.reshape(-1)
  while x.size > 1:
    x = jnp.pad(x, (0, -x.size % 8)).reshape(8, -1)
    x = x[:4] + x[4:]
    x = x[:2] + x[2:]
    x = x[0] + x[1]
  return x.sum()
