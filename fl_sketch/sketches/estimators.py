"""Heavy coordinates of a sketched tree: HEAVYMIX and HEAPRIX of FedSKETCH.

PRIVIX of Haddadpour et al. (arXiv:2008.04975) is `count_sketch(rows, cols,
combine='median').desketch`. The functions take any operator with a linear
sketch and one array for a table. `fedsketch_heaprix` is HEAPRIX among clients.
"""

from typing import Any

from fl_sketch.sketches import base, hashing, primitives, sampling
from fl_sketch.utils import fields
from fl_sketch.utils.types import Key, Table, Tree
import jax
import jax.numpy as jnp

_VECTOR: Any = sampling.identity()  # flattens a tree, and needs no key
FILL = 1  # folded into the key: the random coordinates of a support
FRESH = 2  # folded into the key: the second hash functions of HEAPRIX


def l2_norm(table: Table) -> jax.Array:
  r"""Estimate the norm f32[] of a sketched tree from its table alone.

  .. math:: \Bigl(\mathrm{median}_j \sum_c |T_{j,c}|^2\Bigr)^{1/2}

  A row's sum of squares has mean :math:`\|x\|_2^2` and, in a `count_sketch`,
  variance :math:`(2 / \mathrm{cols}) (\|x\|_2^4 - \|x\|_4^4)`.

  >>> float(l2_norm(jnp.array([[3.0, -4.0], [0.0, 1.0], [9.0, 9.0]])))
  5.0

  The table is [rows, cols], or [size] for one row, and may be complex.
  """
  sizes = jnp.atleast_2d(jnp.abs(table))
  sizes = sizes.astype(jnp.result_type(sizes, jnp.float32))
  scale = primitives.scale_of(sizes)
  rows = jnp.square(sizes / scale).sum(1)
  return scale * jnp.sqrt(primitives.median(list(rows)))


def gather(tree: Tree, support: jax.Array) -> jax.Array:
  """Return the values f32[k] of a tree at some of its coordinates.

  The support is int32[k] in [0, d), counted in the order of the leaves.

  >>> gather({'b': jnp.ones(2), 'w': jnp.arange(4.0)}, jnp.array([5, 0]))
  Array([3., 1.], dtype=float32)
  """
  return _VECTOR.sketch(None, tree)[support]


def scatter(like: Tree, support: jax.Array, values: jax.Array) -> Tree:
  """Return a tree like `like` with values f32[k] at int32[k], else 0.

  >>> like = {'b': jnp.ones(2), 'w': jnp.ones((1, 2))}
  >>> scatter(like, jnp.array([3, 0]), jnp.array([5.0, 7.0]))['w']
  Array([[0., 5.]], dtype=float32)

  Raises ValueError if values and support differ in shape.
  """
  if jnp.shape(values) != jnp.shape(support):
    raise ValueError(f'{jnp.shape(values)=} must be {jnp.shape(support)}.')
  flat = _VECTOR.zero_table(like)
  flat = flat.at[support].set(jnp.asarray(values, flat.dtype))
  return _VECTOR.desketch(None, flat, like)


def heavy_support(
  op: base.Sketch, key: Key, table: Table, like: Tree, k: int
) -> jax.Array:
  r"""Return the support of HEAVYMIX: heavy coordinates, then random ones.

  With g the desketched table and :math:`\ell` its `l2_norm`, a coordinate is
  heavy if :math:`g_i^2 \geq \ell^2 / k`. (The papers print :math:`g_i` for its
  square, which depends on scale and misses negative coordinates.)

  Returns distinct int32[k] in [0, d): heavy coordinates by decreasing \|g\|, at
  most k, the lower first among equals; then uniform ones (`hashing.sample`).

  >>> from fl_sketch import sketches
  >>> op, key, x = sketches.identity(), jax.random.key(0), jnp.array([0.0, -9])
  >>> heavy_support(op, key, op.sketch(key, x), x, 1)
  Array([1], dtype=int32)

  Raises ValueError unless 1 <= k <= d, the table is one array that fits, and
  `op` keeps norms: E||S x||^2 = ||x||^2 in every row.

  Source: Haddadpour et al. (arXiv:2008.04975), Algorithm 3, after Ivkin et al.
  (NeurIPS 2019, arXiv:1903.04488).
  """
  return _heavy(op, key, table, like, k)[0]


def heavymix(
  op: base.Sketch, key: Key, table: Table, like: Tree, k: int,
  exact: jax.Array | None = None,
) -> Tree:  # fmt: skip
  r"""Return HEAVYMIX: the values at `heavy_support`, 0 elsewhere.

  `exact` f32[k] are the true values there; None takes the estimates. With
  exact values :math:`E\|x - \mathrm{HM}\|^2 \leq (1 - k / d) \|x\|^2`, if there
  are enough rows for the median to find heavy coordinates. With estimates it is
  no contraction: the random coordinates are noise.
  """
  support, estimates = _heavy(op, key, table, like, k)
  return scatter(like, support, estimates if exact is None else exact)


def heaprix(
  op: base.Sketch, key: Key, tree: Tree, k: int,
  hash: str = 'fresh', exact: bool = True,
) -> Tree:  # fmt: skip
  r"""Return HEAPRIX: HEAVYMIX, plus the desketched rest.

  .. math:: y_1 + \mathrm{desk}_2(S_2 (x - y_1)), \quad y_1 = \mathrm{HM}(S_1 x)

  E heaprix(x) = x for hash='fresh', whose second hash functions, of
  fold_in(key, FRESH), are independent of y1. hash='shared', the paper's, is
  biased: HEAVYMIX has emptied the buckets that are read again.

  >>> from fl_sketch import sketches
  >>> op, x = sketches.count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> float(heaprix(op, jax.random.key(0), x, 1)['w'][3])
  9.0

  'fresh' sends a second table; 'shared' reads the first less S y1. With `exact`
  HEAVYMIX has the values of `tree` at its support, a further uplink of k
  numbers, else the estimates. Other arguments are those of `heavy_support`.

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
  stated = op.properties
  same_norm = stated.adjoint_scale == 1 and jnp.ndim(table) == 1
  if stated.name != 'count_sketch' and not same_norm:
    raise ValueError(
      f'{stated.name} with {jnp.shape(table)=} does not keep norms; use '
      'count_sketch or an operator with one axis and adjoint_scale=1.'
    )
  fields.check_option('k', k, fields.Count)
  if k > (d := base.dimension(like)):
    raise ValueError(f'{k=} exceeds {d=}; use a smaller k.')
  g = op.desketch(key, table, jax.tree.map(base.wide_type, like))
  return _select(key, table, g, int(k))


# Without `jit` the loops of `hashing` would be compiled at every call.
@jax.jit(static_argnums=3)
def _select(key, table, estimates, k):
  g = _VECTOR.sketch(None, estimates)
  d = g.size
  largest, heavy = jax.lax.top_k(jnp.abs(g), k)
  is_heavy = ~(largest < l2_norm(table) / k**0.5)  # so is a NaN, to be seen
  # At most k of these are heavy, so that enough are left to fill with.
  candidates = hashing.sample(jax.random.fold_in(key, FILL), min(2 * k, d), d)
  free = ~jnp.zeros(d, bool).at[heavy].set(is_heavy)[candidates]
  at = jnp.where(free, is_heavy.sum() + jnp.cumsum(free) - 1, k)
  support = heavy.at[at].set(candidates, mode='drop')
  return support, g[support]
