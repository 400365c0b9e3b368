"""Operators by leaf, and one table for all leaves."""

import functools
from typing import Any

import chex
from fl_sketch import sketches
from fl_sketch.sites import numpy_draws as draws
from fl_sketch.sketches import base
from fl_sketch.sketches.layerwise import layerwise
import jax
import jax.numpy as jnp
import numpy as np
import numpy_client
import operators
from operators import KEY, TREE, vector
import pytest
from refusals import refused

stated_by: Any = lambda op: op.properties
cyclic: Any = functools.partial(layerwise, sketches.block_cyclic)
count_rows = lambda b: sketches.count_sketch(1, b, combine='mean')
# Each with its factory and the b_l that it gives the leaves of TREE.
OPERATORS = {
  'proportional': (cyclic(22), sketches.block_cyclic, (5, 1, 16)),
  'sqrt': (layerwise(count_rows, 20, 'sqrt'), count_rows, (7, 1, 12)),
}


def leaves_of(sizes):
  return [jax.ShapeDtypeStruct((d,), jnp.float32) for d in sizes]


def handed_out(op, sizes):
  tables = jax.eval_shape(op.zero_table, leaves_of(sizes))
  return tuple(table.size for table in tables)


def instances(count):
  """Random (sizes, size), with empty leaves."""
  rng = np.random.default_rng(0)
  for _ in range(count):
    n = rng.integers(1, 8)
    sizes = np.floor(10 ** rng.uniform(-0.5, 4, n)).astype(int)
    least = max((sizes > 0).sum(), 1)
    if sizes.sum() >= least:
      size = rng.integers(least, sizes.sum() + 1)
      yield tuple(sizes.tolist()), int(size)


def water_level(weights, sizes, size):
  """min(max(t w, 1), d) of sum `size`, by bisection on log t."""
  sizes = np.array(sizes, float)
  at = lambda t: np.minimum(np.maximum(np.exp(t) * weights, 1), sizes)
  low, high = -800.0, 800.0
  for _ in range(200):
    middle = (low + high) / 2
    low, high = (middle, high) if at(middle).sum() < size else (low, middle)
  return at(high)


@pytest.mark.parametrize(
  ('rule', 'power'), [('proportional', 1), ('sqrt', 0.5)]
)
def test_rules_share_out_by_their_weights(rule, power):
  """Totals are exact, and no leaf is off by 1 from the real solution."""
  for sizes, size in instances(60):
    b = np.array(handed_out(cyclic(size, rule), sizes))
    assert b.sum() == size
    assert ((b >= np.minimum(1, sizes)) & (b <= sizes)).all()
    want = water_level(np.array(sizes) ** power, sizes, size)
    assert (np.abs(b - want) < 1 + 1e-6).all()
  assert handed_out(cyclic(8), (10, 10, 0, 10)) == (3, 3, 0, 2)  # remainders


@pytest.mark.representatives('proportional')
@pytest.mark.parametrize('name', OPERATORS)
def test_each_leaf_has_its_own_operator(name):
  """So that the laws of operators are those of every leaf."""
  op, factory, sizes = OPERATORS[name]
  leaves = jax.tree.leaves(TREE)

  def one_leaf(key, i, x, b):
    if b == x.size:
      return jnp.ravel(x), x
    return operators.table_and_back(factory(b), jax.random.fold_in(key, i), x)

  @operators.jit
  def both(key):
    tables, out = operators.table_and_back(op, key, TREE)
    want = map(one_leaf, [key] * 3, range(3), leaves, sizes)
    got = zip(tables, jax.tree.leaves(out), strict=True)
    return list(got), list(want)

  got, want = both(KEY)
  chex.assert_trees_all_close(got, want, atol=1e-6)
  for x, b, (_, out) in zip(leaves, sizes, got, strict=True):
    assert b < x.size or (out == x).all()


def test_properties_are_those_of_the_worst_leaf_and_of_raw_ones():
  """Catches constants of the first leaf, and 2 b floats of a complex leaf."""
  op, leaves = layerwise(sketches.srft, 6), leaves_of([8, 6])
  tables = jax.eval_shape(op.zero_table, leaves)
  assert [t.dtype for t in tables] == [jnp.complex64, jnp.float32]
  assert stated_by(op).floats(leaves) == 6 + 6
  op, d = cyclic(20), (15, 1, 48)  # 5, 1 and 14
  p, b = stated_by(op), handed_out(op, d)
  one = lambda d, b: stated_by(sketches.block_cyclic(b)).alpha(d)
  assert p.floats(TREE) == p.floats(TREE['w']) == p.floats(48) == 20
  assert p.alpha(TREE) == max(one(*db) for db in zip(d, b, strict=True))
  assert p.alpha(64) == one(64, 20)
  assert p.coordinate_wise(TREE) == 20 * 2 / 5
  assert p.coordinate_wise(64) == 2
  assert p.alpha(jnp.ones(20)) == p.coordinate_wise(20) == 0  # raw
  assert (p.linear, p.adjoint_scale) == (True, 1.0)
  median = lambda b: sketches.count_sketch(3, -(-b // 3))
  p = stated_by(layerwise(median, 20))
  assert p == p._replace(alpha=None, coordinate_wise=None, linear=False)
  mean = lambda b: sketches.count_sketch(2, -(-b // 2), combine='mean')
  p = stated_by(layerwise(mean, 20))  # that of raw leaves would be 1
  assert (p.linear, p.adjoint_scale) == (True, None)


# Catches a leaf without a part, and parts that do not add up.
test_sizes_that_cannot_be_shared_out_are_refused = refused(
  lambda shared: cyclic(*shared).zero_table(TREE),
  ((3, 'norm'), 'size|rule|alloc'), ((65, 'sqrt'), 'size'),
)  # fmt: skip


DIMS = 15, 1, 48  # of TREE
PARTS = (5, 1, 12), (4, 2, 12), (15, 1, 2)


def twin(sizes):
  """R of TREE, one leaf at a time."""
  r, start, offset = np.zeros((sum(sizes), sum(DIMS))), 0, 0
  key = np.asarray(jax.random.key_data(KEY))
  (seed,) = draws.seeds(key, 1, draws.SIGN)
  for d, b in zip(DIMS, sizes, strict=True):
    i = np.arange(d, dtype=np.uint32)
    block, u = divmod(i, np.uint32(b))
    (shift,) = numpy_client.kwise(key, 1, 2, draws.SHIFT, start + block)
    signs = numpy_client.signs(draws.word(start + i, seed), 0)
    r[offset + (u + shift) % b, start + i] = signs
    start, offset = start + d, offset + b
  return r


@pytest.mark.parametrize('small', [2, base.SMALL_LEAF], ids=['alone', 'joined'])
def test_the_matrix_is_its_twin_whatever_the_parts(small, set_constant):
  """Catches a part that reaches into the next, and parts that are constants."""
  set_constant(base, 'SMALL_LEAF', small)

  @operators.jit
  def there_and_back(sizes, key):
    op = sketches.layer_cyclic(18, sizes)
    return operators.table_and_back(op, key, TREE)

  for sizes in PARTS:
    r = twin(sizes)
    table, out = there_and_back(np.int32(sizes), KEY)
    np.testing.assert_allclose(table, r @ vector(TREE), atol=1e-5)
    np.testing.assert_allclose(vector(out), r.T @ table, atol=1e-5)


# Catches parts that overlap: below 1, of another sum, number or tree.
test_parts_that_do_not_fit_are_refused = refused(
  lambda x: sketches.layer_cyclic(max(sum(x), 18), x).zero_table(TREE),
  ((18, 0, 2), 'size'), ((1, 1), 'size'), ((9, 9), 'size'),
  ((60, 1, 4), 'size'),
)  # fmt: skip
