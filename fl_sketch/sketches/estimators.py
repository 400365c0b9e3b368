"""Heavy coordinates of a sketched tree: HEAVYMIX and HEAPRIX of FedSKETCH.

PRIVIX of Haddadpour et al. (arXiv:2008.04975) is `count_sketch(rows, cols,
combine='median').desketch`. What follows is built on any operator with a linear
sketch and one array for a table; its laws are those of the median.

Between machines HEAPRIX goes in parts. Clients send tables; the server sends
the `heavy_support` of their mean; clients answer with their values there, by
`gather`, and a table by fold_in(key, FRESH). From its mean the server takes the
sketch of the mean values, which `scatter` puts in a tree, and reads the rest.
"""

from fl_sketch.sketches import base, hashing, median
import jax
import jax.numpy as jnp
import numpy as np

# Folded into a key: the draw that fills a support, the second hash of HEAPRIX.
FILL, FRESH = 1, 2


def l2_norm(table: jax.Array) -> jax.Array:
  r"""Estimate the norm f32[] of a sketched tree from its table alone.

  .. math:: \Bigl(\mathrm{median}_j \sum_c |T_{j,c}|^2\Bigr)^{1/2}

  A row's sum of squares has mean :math:`\|x\|_2^2` and, in a `count_sketch`,
  variance :math:`(2 / \mathrm{cols}) (\|x\|_2^4 - \|x\|_4^4)`. Hence one row
  is off by more than half of :math:`\|x\|_2^2` with probability at most
  8 / cols, and from 32 columns on the median with at most exp(-rows / 8).

  >>> float(l2_norm(jnp.array([[3.0, -4.0], [0.0, 1.0], [9.0, 9.0]])))
  5.0

  The table is f32[rows, cols] or f32[size], which is one row; it may be
  complex. Raises ValueError for other axes, and TypeError for what is no such
  array.
  """
  _check_table(table)
  if table.ndim not in (1, 2):
    raise ValueError(f'{table.ndim=} must be 1 or 2.')
  sizes = jnp.atleast_2d(jnp.abs(table))
  sizes = sizes.astype(jnp.result_type(sizes, jnp.float32))
  return jnp.sqrt(median.median(list(jnp.square(sizes).sum(1))))


def gather(tree: base.Tree, support: jax.Array) -> jax.Array:
  """Return the values f32[k] of a tree at some of its coordinates.

  >>> gather({'b': jnp.ones(2), 'w': jnp.arange(4.0)}, jnp.array([5, 0]))
  Array([3., 1.], dtype=float32)

  The support is int32[k] in [0, d), counted from 0 in the order of the leaves.
  Raises TypeError if a leaf is not of a float type.
  """
  return _vector(tree)[support]


def scatter(
  like: base.Tree, support: jax.Array, values: jax.Array
) -> base.Tree:
  """Undo `gather`: a tree like `like` of the values there, 0 elsewhere.

  >>> like = {'b': jnp.ones(2), 'w': jnp.ones((1, 2))}
  >>> scatter(like, jnp.array([3, 0]), jnp.array([5.0, 7.0]))['w']
  Array([[0., 5.]], dtype=float32)

  Values are f32[k], coordinates distinct, and leaves of `like` arrays or
  `jax.ShapeDtypeStruct`. Errors are those of `gather`, and ValueError if
  values and support are not of one shape.
  """
  shape, want = jnp.shape(values), jnp.shape(support)
  if shape != want:
    raise ValueError(f'values.{shape=} must be {want}, that of support.')
  flat = jnp.zeros_like(base.vector_type(like))
  flat = flat.at[support].set(jnp.asarray(values, flat.dtype))
  types, treedef = jax.tree.flatten(jax.tree.map(base.leaf_type, like))
  return treedef.unflatten(base.split(flat, types))


def heavy_support(
  op: base.Sketch, key: jax.Array, table: jax.Array, like: base.Tree, k: int
) -> jax.Array:
  r"""Return the support of HEAVYMIX: heavy coordinates, then random ones.

  With g the desketched table, a coordinate is heavy if :math:`g_i^2 \geq \ell^2
  / k`, :math:`\ell` being the table's `l2_norm`, which is that of x only if
  E||S x||^2 = ||x||^2 in every row: for a `count_sketch` and for operators
  whose adjoint_scale is 1. The papers print :math:`g_i` for its square: that
  choice depends on scale, and misses what is negative.

  Guarantees:
    distinct: k different coordinates, in every draw.
    heavy first: by decreasing \|g\|, the lower coordinate first among equals;
      if more than k are heavy, the k largest.
    uniform fill: the others are drawn from the complement without replacement,
      by `hashing.sample` of fold_in(key, FILL), in O(k) random words.
    equivariant: x, -x and 2 x have one support.

  >>> from fl_sketch import sketches
  >>> op, key, x = sketches.identity(), jax.random.key(0), jnp.array([0.0, -9])
  >>> heavy_support(op, key, op.sketch(key, x), x, 1)
  Array([1], dtype=int32)

  The table, one array, is of op.sketch(key, ...); `like` has d numbers, in
  arrays or `jax.ShapeDtypeStruct`. Returns int32[k] in [0, d), counted in the
  order of the leaves.

  Raises:
    TypeError: the table is not one array of floats or of complex numbers.
    ValueError: k is no integer from 1 to d, the table does not fit, or the
      operator's tables have another norm, such as those of `scaled`.

  Source: Haddadpour et al. (arXiv:2008.04975), Algorithm 3, after Ivkin et al.
  (NeurIPS 2019, arXiv:1903.04488).
  """
  return _heavy(op, key, table, like, k)[0]


def heavymix(
  op: base.Sketch, key: jax.Array, table: jax.Array, like: base.Tree, k: int,
  exact: jax.Array | None = None,
) -> base.Tree:  # fmt: skip
  r"""HEAVYMIX: the sketched values at `heavy_support`, 0 elsewhere.

  Guarantees, with the exact values:
    contraction: :math:`E\|x - \mathrm{HM}\|^2 \leq (1 - k / d) \|x\|^2` where
      the rows are enough for the median to tell heavy coordinates from what
      they collide with, which one row cannot; with equality in every draw where
      all :math:`|x_i|` are equal.
  With estimates there is none: the fill is noise. Measured in the setting of
  `heaprix`, the ratio is 0.40 and 0.92 for power-law and normal x with exact
  values, below 1 - k / d = 0.95; with estimates it is 1.03 and 2.31.

  >>> from fl_sketch import sketches
  >>> op, key, x = sketches.identity(), jax.random.key(0), jnp.array([0.0, -9])
  >>> heavymix(op, key, op.sketch(key, x), x, 1)
  Array([ 0., -9.], dtype=float32)

  Arguments and errors are those of `heavy_support`; `exact` f32[k] are values
  in the support's order, and None takes the estimates.
  """
  if exact is not None and jnp.shape(exact) != (k,):
    raise ValueError(f'exact.shape={jnp.shape(exact)} must be ({k},).')
  support, estimates = _heavy(op, key, table, like, k)
  return scatter(like, support, estimates if exact is None else exact)


def heaprix(
  op: base.Sketch, key: jax.Array, tree: base.Tree, k: int,
  hash: str = 'fresh', exact: bool = True,
) -> base.Tree:  # fmt: skip
  r"""HEAPRIX: HEAVYMIX, plus the desketched estimate of the remainder.

  .. math:: y_1 + \mathrm{desk}_2(S_2 (x - y_1)), \quad y_1 = \mathrm{HM}(S_1 x)

  Guarantees:
    unbiased: E heaprix(x) = x for hash='fresh', whose second hash functions,
      by fold_in(key, FRESH), are independent of y1; `exact` or not.
    biased: for hash='shared', the paper's, as HEAVYMIX has emptied the very
      buckets that are read again. Measured over 2000 keys, 5 rows of 100
      buckets, d = 2000 and k = 100, :math:`\langle E y, x\rangle / \|x\|^2` is
      0.96 with exact values and 0.50 with estimates for :math:`|x_i| =
      i^{-0.6}`, signs random; 0.89 and 0.13 for normal x.
  The squared error of 'shared' was the smaller one even so: for normal x and
  exact values 4.3 against 5.1 :math:`\|x\|^2`, and 5.6 for the median alone.

  >>> from fl_sketch import sketches
  >>> op, x = sketches.count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> float(heaprix(op, jax.random.key(0), x, 1)['w'][3])
  9.0

  Args:
    op: an operator whose table is one array.
    key: key[].
    tree: d numbers; sums are taken in float32 at least.
    k: how many coordinates HEAVYMIX keeps, 1 <= k <= d.
    hash: 'fresh' sends a second table; 'shared' reads the first less S y1.
    exact: whether HEAVYMIX has the values of `tree` at its support, a further
      uplink of k numbers, or the estimates.

  Raises:
    TypeError: the table is not one array of floats or of complex numbers.
    ValueError: k or `hash` is not as stated, or the table exceeds the tree.

  Source: Haddadpour et al. (arXiv:2008.04975), Algorithm 4.
  """
  if hash not in ('fresh', 'shared'):
    raise ValueError(f"{hash=} must be 'fresh' or 'shared'.")
  # Rounded once, at the end: a bfloat16 leaf's y1 and rest may cancel.
  like = jax.tree.map(base.wide_type, tree)
  support, values = _heavy(op, key, op.sketch(key, tree), like, k)
  y1 = scatter(like, support, gather(tree, support) if exact else values)
  second = jax.random.fold_in(key, FRESH) if hash == 'fresh' else key
  rest = op.sketch(second, jax.tree.map(jnp.subtract, tree, y1))
  add = lambda x, a, b: (a + b).astype(base.leaf_type(x).dtype)
  return jax.tree.map(add, tree, y1, op.desketch(second, rest, like))


def _heavy(op, key, table, like, k):
  _check_table(table)
  promises = base.properties(op)
  same_norm = promises.adjoint_scale == 1 and table.ndim == 1
  if promises.name != 'count_sketch' and not same_norm:
    raise ValueError(
      f'{promises.name} with {table.shape=} does not keep norms; use '
      'count_sketch or an operator with one axis and adjoint_scale=1.'
    )
  base.check_positive(k=k)
  d = base.vector_type(like).size
  if k > d:
    raise ValueError(f'{k=} exceeds {d=}; use a smaller k.')
  g = op.desketch(key, table, jax.tree.map(base.wide_type, like))
  return _select(key, table, g, int(k))


# Eagerly the loops of `hashing` are compiled at every call, by `jit` once.
@jax.jit(static_argnums=3)
def _select(key, table, estimates, k):
  g = _vector(estimates)
  d = g.size
  largest, heavy = jax.lax.top_k(jnp.abs(g), k)
  is_heavy = ~(largest < l2_norm(table) / k**0.5)  # so is a NaN, to be seen
  # At most k of these are heavy, so that enough are left to fill with.
  candidates = hashing.sample(jax.random.fold_in(key, FILL), min(2 * k, d), d)
  free = ~jnp.zeros(d, bool).at[heavy].set(is_heavy)[candidates]
  at = jnp.where(free, is_heavy.sum() + jnp.cumsum(free) - 1, k)
  support = heavy.at[at].set(candidates, mode='drop')
  return support, g[support]


def _vector(tree):
  vector = base.vector_type(tree)
  runs = [base.Segment(0, jnp.ravel(leaf)) for leaf in jax.tree.leaves(tree)]
  return base.join(runs, vector.size, vector.dtype)


def _check_table(table):
  if not isinstance(table, jax.Array | np.ndarray):
    raise TypeError(f'{type(table)=} must be one array.')
  if not jnp.issubdtype(table.dtype, jnp.inexact):
    raise TypeError(f"table.dtype='{table.dtype}' must be floating or complex.")
