"""Combines operators: rescaled, composed, or averaged."""

import math
from typing import Any

from fl_sketch.sketches import base
import jax
from jax import lax
import jax.numpy as jnp

# Smaller numbers are folded into the same key by the estimators.
FIRST = 16


def scaled(op: base.Sketch, factor: float) -> base.Sketch:
  r"""Multiplies the table by `factor`; desketch divides by it.

  With :math:`f = \sqrt{b / d}`, an operator whose rows are orthogonal gets
  spectral norm 1, which Assumption M.2 of Song et al. (ICML 2023) takes for
  granted: unscaled it is :math:`\sqrt{d / b}`.

  Guarantees:
    what desketch makes of a sketch is that of `op`: lack of bias, moments,
      exactness. A desketch that is not linear is asked for positive homogeneity
      only, which a median has.
    adjoint: if <S x, y> = c <x, D y>, then <f S x, y> = f^2 c <x, D y / f>.
    orthogonal rows, in the sense of R R^T = (d / b) I, only with factor 1: the
      rows stay orthogonal, but R R^T becomes f^2 (d / b) I.

  >>> from fl_sketch.sketches.identity import identity
  >>> op, key, x = scaled(identity(), 0.5), jax.random.key(0), jnp.ones(2)
  >>> table = op.sketch(key, x)
  >>> table.tolist(), op.desketch(key, table, x).tolist()
  ([0.5, 0.5], [1.0, 1.0])

  Args:
    op: an operator with properties.
    factor: a Python number above 0.

  Returns:
    A `Sketch` with the tables of `op`.

  Raises:
    ValueError: the factor is not finite or not above 0, or `op` states no
      properties.
  """
  promises, factor = base.properties(op), float(factor)
  if not 0 < factor < math.inf:
    raise ValueError(f'Expected {factor=} to be finite and > 0.')

  def sketch(key, tree):
    return _times(factor, op.sketch(key, tree))

  def desketch(key, table, like):
    return op.desketch(key, jax.tree.map(lambda x: x / factor, table), like)

  scale = promises.adjoint_scale
  promises = promises._replace(
    name='scaled',
    adjoint_scale=None if scale is None else factor**2 * scale,
    orthogonal_rows=promises.orthogonal_rows and factor == 1,
  )
  return base.Sketch(sketch, desketch, op.like, promises)


def composed(outer: base.Sketch, inner: base.Sketch) -> base.Sketch:
  r"""Sketches the table of another sketch: :math:`R = R_2 R_1`.

  `inner` has the key ``fold_in(key, FIRST)``, `outer` the next. Such as
  a slow operator of light tails on the table of a fast one.

  Guarantees, where both operators have them:
    linear, and desketch is the adjoint of sketch; scales multiply.
    unbiased: E desketch(sketch(x)) = x. Given the inner key, the outer decoder
      returns the inner table in expectation, whence the inner one has to be
      linear; the outer may be a median.
    orthogonal rows: R R^T = (d / b) I where neither operator pads.
    second moment: E||desketch(sketch(x))||^2 = (1 + alpha_1) (1 + alpha_2)
      ||x||^2 where the inner rows are orthogonal, R_1 R_1^T = (d / b_1) I, and
      the outer moment is the same in all directions: then ||R_1^T y||^2 =
      (d / b_1) ||y||^2, 1 + alpha_1 = d / b_1, and E||R_1 x||^2 = ||x||^2. In
      general R_1^T stretches the outer noise and the signal differently, in a
      way that alphas do not tell; so no alpha is promised, nor a
      coordinate-wise constant.

  >>> from fl_sketch.sketches.block_cyclic import block_cyclic
  >>> op = composed(block_cyclic(4), block_cyclic(16))
  >>> op.like(jnp.ones(64)).shape
  (4,)

  Args:
    outer: an operator with properties.
    inner: a linear operator with real tables: those of `srft` are a TypeError
      when `outer` meets them.

  Returns:
    A `Sketch` with the tables of `outer`; it raises ValueError if a table is
    larger than what it sketches.

  Raises:
    ValueError: `inner` is not linear, or an operator states no properties.
  """
  first, second = base.properties(inner), base.properties(outer)
  if not first.linear:
    raise ValueError(f'Expected inner={first.name!r} to be linear.')
  keys = lambda key: [jax.random.fold_in(key, FIRST + i) for i in range(2)]

  def sketch(key, tree):
    one, two = keys(key)
    return outer.sketch(two, inner.sketch(one, tree))

  def desketch(key, table, like):
    one, two = keys(key)
    middle = outer.desketch(two, table, _table_type(inner, like))
    return inner.desketch(one, middle, like)

  one, two = first.adjoint_scale, second.adjoint_scale
  promises = base.Properties(
    'composed',
    floats=lambda like: second.floats(_table_type(inner, like)),
    alpha=None,
    coordinate_wise=None,
    linear=second.linear,
    adjoint_scale=None if one is None or two is None else one * two,
    exact_at_full_size=first.exact_at_full_size and second.exact_at_full_size,
    orthogonal_rows=first.orthogonal_rows and second.orthogonal_rows,
    embedding=first.embedding and second.embedding,
  )
  like = lambda tree: outer.like(_table_type(inner, tree))
  return base.Sketch(sketch, desketch, like, promises)


def stacked(op: base.Sketch, copies: int) -> base.Sketch:
  r"""The mean of independent draws: R stacks them, each over sqrt(copies).

  Copy i has the key ``fold_in(key, FIRST + i)``. They are made one by one, so
  that what is held are their tables and two trees in float32 at least, a sum
  and an estimate.
  ``block_cyclic(size, sparsity=copies)`` is the fast form of stacked
  ``block_cyclic(size // copies)``.

  Guarantees, where `op` has them:
    linear, and desketch is the adjoint of sketch up to the scale of `op`.
    unbiased: E desketch(sketch(x)) = x.
    second moment: alpha / copies, as independent errors of mean zero add up.
    coordinate-wise constant a of `op`, for the b of all tables together.
    A desketch that is not linear is asked for positive homogeneity only: that
      of a stacked median is the mean of the medians.

  >>> from fl_sketch.sketches.block_cyclic import block_cyclic
  >>> op = stacked(block_cyclic(8), 3)
  >>> op.like(jnp.ones(64)).shape, base.properties(op).alpha(64) == 7 / 3
  ((3, 8), True)

  Args:
    op: an operator with properties.
    copies: how many draws; they cost as many passes.

  Returns:
    A `Sketch` whose tables are those of `op` with a leading axis,
    f32[copies, ...]; it raises ValueError if they hold more than d numbers.

  Raises:
    ValueError: copies is below 1, or `op` states no properties.
  """
  base.check_positive(copies=copies)
  promises, scale = base.properties(op), copies**-0.5

  # Eagerly a loop is compiled at every call, by `jit` once.
  @jax.jit
  def sketch_copies(key, tree):
    one = lambda i: op.sketch(jax.random.fold_in(key, FIRST + i), tree)
    return _times(scale, lax.map(one, jnp.arange(copies)))

  @jax.jit(static_argnums=(2, 3))
  def desketch_copies(key, tables, treedef, types):
    total = _sum_of_estimates(op, key, tables, treedef, types)
    narrow = lambda x, t: (scale * x).astype(t.dtype)
    return jax.tree.map(narrow, total, treedef.unflatten(types))

  def zero_tables(tree):
    one = op.like(tree)
    size = sum(x.size for x in jax.tree.leaves(one))
    d = base.dimension(tree)
    if copies * size > d:
      raise ValueError(f'Expected {copies=} * {size} <= {d=}.')
    return jax.tree.map(lambda x: jnp.zeros((copies, *x.shape), x.dtype), one)

  def sketch(key, tree):
    jax.eval_shape(zero_tables, tree)  # raises if the tables exceed the tree
    return sketch_copies(key, tree)

  def desketch(key, tables, like):
    shapes = lambda tree: jax.tree.map(lambda x: x.shape, tree)
    want = shapes(jax.eval_shape(zero_tables, like))
    if shapes(tables) != want:
      raise ValueError(f'Expected table.shape={shapes(tables)} == {want}.')
    leaves, treedef = jax.tree.flatten(like)
    types = tuple(map(base.leaf_type, leaves))
    return desketch_copies(key, tables, treedef, types)

  stack = _stacked_promises(promises, copies)
  return base.Sketch(sketch, desketch, zero_tables, stack)


def _sum_of_estimates(op, key, tables, treedef, types):
  """Of all copies, in float32 at least: rounded once, not after every copy."""
  wider = lambda t: jnp.result_type(jnp.float32, t.dtype)
  wide = [jax.ShapeDtypeStruct(t.shape, wider(t)) for t in types]

  def estimate(i, table):
    key_i = jax.random.fold_in(key, FIRST + i)
    return op.desketch(key_i, table, treedef.unflatten(wide))

  def add(total, copy):
    return jax.tree.map(jnp.add, total, estimate(*copy)), None

  # The loop carries one type throughout, so it starts from an estimate.
  first = estimate(0, jax.tree.map(lambda x: x[0], tables))
  copies = jax.tree.leaves(tables)[0].shape[0]
  rest = jnp.arange(1, copies), jax.tree.map(lambda x: x[1:], tables)
  return lax.scan(add, first, rest)[0]


def _stacked_promises(promises, copies) -> base.Properties:
  alpha, variance = promises.alpha, promises.variance

  def mean_variance(g, h):
    exact = variance(g, h)
    return None if exact is None else exact / copies

  return promises._replace(
    name='stacked',
    floats=lambda like: copies * promises.floats(like),
    alpha=None if alpha is None else lambda like: alpha(like) / copies,
    variance=variance and mean_variance,
    printed=None,
    exact_at_full_size=promises.exact_at_full_size and copies == 1,
    orthogonal_rows=promises.orthogonal_rows and copies == 1,
  )


def _times(factor: float, table: base.Table) -> base.Table:
  return jax.tree.map(lambda x: factor * x, table)


def _table_type(op: base.Sketch, like: Any) -> base.Table:
  """The shapes and dtypes of a table, for a tree or a number of coordinates."""
  return jax.eval_shape(op.like, base.as_tree(like))
