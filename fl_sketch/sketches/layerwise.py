"""Layer-wise sketching: a separate operator for every leaf of a tree."""

from collections.abc import Callable
from fractions import Fraction
import functools
import math
from typing import Any

from fl_sketch.sketches import base
from fl_sketch.sketches.identity import identity
import jax
import numpy as np

_RULES = {'proportional': int, 'sqrt': math.sqrt}  # d_l -> weight


def layerwise(
  factory: Callable[[int], base.Sketch], size: int,
  allocation: str | tuple[int, ...] = 'proportional',
) -> base.Sketch:  # fmt: skip
  r"""Sketch each leaf by itself, so that no leaf's noise reaches another.

  :math:`R = \mathrm{blockdiag}(R_1, \ldots, R_L)`, where :math:`R_l` is
  ``factory(b_l)`` under the key ``fold_in(key, l)`` and the :math:`b_l` add up
  to `size`. The future work of SAFL (Chen, Li, Banerjee, arXiv:2411.06770).

  A leaf with b_l >= d_l, or whose table would not be smaller than itself, is
  sent raw. What a rule would give a leaf beyond its size goes to the others.

  Guarantees, where the leaves' operators have them:
    linear, desketch its adjoint; unbiased, leaf by leaf; raw leaves exact.
    exact total: a rule hands out exactly `size` numbers, at least 1 a leaf.
    second moment: E||desketch(sketch(x))||^2 = sum_l (1 + alpha_l) ||x_l||^2,
      raw leaves' alpha_l being 0, so that alpha = max_l alpha_l. With alpha_l =
      d_l / b_l - 1 and b_l as d_l, it is that of one operator for all leaves.
    coordinate-wise constant b max_l (a_l / b_l), with b = sum_l b_l: the blocks
      are independent, so their variances add up, to at most
      sum_l (a_l / b_l) ||g_l||^2 ||h_l||^2.

  The adjoint's scale is promised only where the factory's is 1, as if raw.

  >>> from fl_sketch.sketches.block_cyclic import block_cyclic
  >>> op = layerwise(block_cyclic, 12)
  >>> [table.shape for table in op.zero_table([np.ones((6, 8)), np.ones(2)])]
  [(11,), (1,)]

  Args:
    factory: b -> an operator with properties and a table of b numbers, such as
      `block_cyclic` or ``lambda b: count_sketch(1, b)``. Called for `size`, to
      learn what it promises, and for every b_l; one may round b.
    size: numbers in all tables together.
    allocation: 'proportional' (b_l as d_l), 'sqrt' (b_l as the square root of
      d_l), or a tuple of one integer a leaf: at least 1, or 0 for an empty
      leaf; one above the leaf's size means raw, and the excess is not sent.

  Tables are tuples of the leaves' tables; that of an empty leaf is f32[0].

  Raises:
    ValueError: size is below 1, no such rule, a tuple with negative entries or
      of another sum, an operator that promises less than ``factory(size)``; of
      the operator's functions, size > d, there are more leaves than numbers, or
      a tuple does not suit the leaves.
  """
  base.check_positive(size=size)
  rule = _checked_rule(allocation, size)
  make = functools.cache(factory)
  promised = base.properties(make(size))
  raw, fold = identity(), jax.random.fold_in

  def operator(b, d):
    op = make(b) if b < d else raw
    promises = base.properties(op)
    if promises.floats(d) >= d:
      return raw
    _check_kept(b, promises, size, promised)
    return op

  def parts(leaves):
    sizes = tuple(math.prod(base.leaf_type(leaf).shape) for leaf in leaves)
    return list(map(operator, _allocated(rule, sizes, size), sizes))

  def sketch(key, tree):
    leaves = jax.tree.leaves(tree)
    each = enumerate(zip(parts(leaves), leaves, strict=True))
    return tuple(op.sketch(fold(key, i), leaf) for i, (op, leaf) in each)

  def desketch(key, tables, like):
    leaves, treedef = jax.tree.flatten(like)
    if len(tables) != len(leaves):
      raise ValueError(f'{len(tables)=} must be {len(leaves)}, one a leaf.')
    each = enumerate(zip(parts(leaves), tables, leaves, strict=True))
    out = (op.desketch(fold(key, i), y, x) for i, (op, y, x) in each)
    return treedef.unflatten(out)

  def zero_tables(tree):
    leaves = jax.tree.leaves(tree)
    each = zip(parts(leaves), leaves, strict=True)
    return tuple(op.zero_table(leaf) for op, leaf in each)

  return base.Sketch(sketch, desketch, zero_tables, _promises(promised, parts))


def _checked_rule(allocation: Any, size: int) -> str | tuple[int, ...]:
  if isinstance(allocation, str):
    if allocation not in _RULES:
      raise ValueError(f'{allocation=} must be in {tuple(_RULES)} or a tuple.')
    return allocation
  entries = tuple(allocation)
  for b in entries:
    if not isinstance(b, int | np.integer) or b < 0:
      raise ValueError(f'{allocation=} must hold integers >= 0.')
  if sum(entries) != size:
    raise ValueError(f'{allocation=} has the sum {sum(entries)}, not {size=}.')
  return tuple(map(int, entries))


def _check_kept(b, promises, size, promised):
  """What is claimed of all leaves is what ``factory(size)`` claims."""
  for claim in 'linear', 'alpha', 'coordinate_wise', 'variance', 'embedding':
    if getattr(promised, claim) and not getattr(promises, claim):
      raise ValueError(f'factory({b}) is not {claim!r}, as factory({size}) is.')
  if promised.adjoint_scale == 1 and promises.adjoint_scale != 1:
    raise ValueError(
      f'factory({b}) has adjoint_scale={promises.adjoint_scale}, '
      f'factory({size}) has 1; they must agree.'
    )


def _promises(promised, parts) -> base.Properties:
  def of_leaves(like) -> list[tuple[Any, int, int]]:
    """(properties, d, numbers in a table) of every leaf that is not empty."""
    if isinstance(like, int | np.integer):
      like = jax.ShapeDtypeStruct((int(like),), np.float32)
    leaves, facts = jax.tree.leaves(like), []
    for op, leaf in zip(parts(leaves), leaves, strict=True):
      tables = jax.tree.leaves(jax.eval_shape(op.zero_table, leaf))
      if b := sum(table.size for table in tables):
        facts.append((base.properties(op), base.dimension(leaf), b))
    return facts

  def coordinate_wise(like):
    leaves = [(p.coordinate_wise(d), b) for p, d, b in of_leaves(like)]
    if any(a is None for a, _ in leaves):
      return None
    return max(a / b for a, b in leaves) * sum(b for _, b in leaves)

  def variance(g, h):
    leaves = jax.tree.leaves(g)
    each: Any = [base.properties(op).variance for op in parts(leaves)]
    pairs = zip(each, leaves, jax.tree.leaves(h), strict=True)
    values = [exact(*pair) for exact, *pair in pairs]
    return None if None in values else sum(values)

  alpha = lambda like: max(p.alpha(d) for p, d, _ in of_leaves(like))
  return base.Properties(
    'layerwise', exact_at_full_size=True, embedding=promised.embedding,
    floats=lambda like: sum(p.floats(d) for p, d, _ in of_leaves(like)),
    alpha=alpha if promised.alpha else None,
    coordinate_wise=coordinate_wise if promised.coordinate_wise else None,
    variance=variance if promised.variance else None,
    linear=promised.linear,
    adjoint_scale=1.0 if promised.adjoint_scale == 1 else None,
  )  # fmt: skip


@functools.lru_cache
def _allocated(rule: Any, sizes: tuple[int, ...], size: int) -> tuple[int, ...]:
  """Return the numbers b_l a leaf of `layerwise`, none above d_l."""
  if size > sum(sizes):
    raise ValueError(f'{size=} exceeds d={sum(sizes)}; use a smaller size.')
  if rule in _RULES:
    count = sum(d > 0 for d in sizes)
    if size < count:
      raise ValueError(f'{size=} must be >= {count}, one a leaf.')
    # Rounded by largest remainder: each is off by less than 1.
    shares = _shares(list(map(_RULES[rule], sizes)), sizes, size)
    floors = [math.floor(share) for share in shares]
    order = sorted(range(len(sizes)), key=lambda i: floors[i] - shares[i])
    up = set(order[: size - sum(floors)])
    return tuple(floor + (i in up) for i, floor in enumerate(floors))
  if len(rule) != len(sizes):
    raise ValueError(f'{len(rule)=} must be {len(sizes)}, one a leaf.')
  for i, (b, d) in enumerate(zip(rule, sizes, strict=True)):
    if d and not b:
      raise ValueError(f'allocation[{i}]=0 must be >= 1: the leaf has {d=}.')
  return tuple(map(min, rule, sizes))


def _shares(weights, sizes, size) -> list[Fraction]:
  """The real solution min(max(t w_l, 1), d_l) of sum `size`; 0 where d_l is."""
  # Bitran and Hax (Management Science, 1981): the bounds that bind on the
  # heavier side do in the solution. Rational: all find the same numbers.
  shares = [Fraction(0)] * len(sizes)
  free, rest = [i for i, d in enumerate(sizes) if d], Fraction(size)
  while free:
    t = rest / sum(Fraction(weights[i]) for i in free)
    at = {i: t * Fraction(weights[i]) for i in free}
    high = {i: Fraction(sizes[i]) for i in free if at[i] > sizes[i]}
    low = {i: Fraction(1) for i in free if at[i] < 1}
    excess = sum(at[i] - sizes[i] for i in high)
    missing = sum(1 - at[i] for i in low)
    settled = high if excess > missing else low or at
    for i in settled:
      shares[i] = settled[i]
    free = [i for i in free if i not in settled]
    rest -= sum(settled.values())
  return shares
