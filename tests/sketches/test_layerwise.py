"""Layer-wise sketching: who gets how much, and what the blocks add up to."""

import functools
from typing import Any

import cases
import chex
from fl_sketch import algorithms, sketches
from fl_sketch.sketches.layerwise import layerwise
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, TREE, vector
import pytest
from refusals import refused_calls

promises_of: Any = sketches.properties
cyclic: Any = functools.partial(layerwise, sketches.block_cyclic)
count_rows = lambda b: sketches.count_sketch(1, b, combine='mean')
# Each with its factory and the b_l that it gives the leaves of TREE.
OPERATORS = {
  'proportional': (cyclic(22), sketches.block_cyclic, (5, 1, 16)),
  'sqrt': (layerwise(count_rows, 20, 'sqrt'), count_rows, (7, 1, 12)),
  'explicit': (layerwise(sketches.gaussian, 29, (21, 2, 6)), sketches.gaussian,
    (15, 1, 6)),
}  # fmt: skip


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


def test_structure_and_dtype():
  operators.structure(OPERATORS['proportional'][0])


@pytest.mark.covers('S4-Layer')
def test_moments():
  """Lack of bias, the second moment, and the variances of pairs."""
  # 64 means within 6 standard errors, one, and 4 from above and from below:
  # 1.5e-7 to miss one.
  op, factory, sizes = OPERATORS['proportional']
  promises, x = promises_of(op), vector(TREE).astype(np.float64)
  moment = 0.0
  for leaf, b in zip(jax.tree.leaves(TREE), sizes, strict=True):
    raw = b == leaf.size
    alpha = 0 if raw else promises_of(factory(b)).alpha(leaf.size)
    moment += (1 + alpha) * np.square(leaf).sum()
  keys = jax.random.split(jax.random.key(1), 4000)
  fn = operators.jit(jax.vmap(operators.both(op), (0, None)))
  flat = [np.reshape(x, (4000, -1)) for x in jax.tree.leaves(fn(keys, TREE))]
  draws = np.concatenate(flat, axis=1).astype(np.float64)
  means, errors = operators.mean_and_error(draws)
  assert (np.abs(means - x) < 6 * errors + 1e-6).all()
  mean, error = operators.mean_and_error(np.square(draws).sum(1))
  assert abs(mean - moment) < 6 * error < 0.12 * moment
  assert (1 + promises.alpha(TREE)) * (x @ x) >= moment  # of the worst leaf
  bound = promises.coordinate_wise(TREE) / promises.floats(TREE)
  for h in (x, *np.random.default_rng(0).standard_normal((3, 64))):
    square, error = operators.mean_and_error(np.square((draws - x[None]) @ h))
    assert square < bound * (x @ x) * (h @ h) + 6 * error
    tree = ravel_pytree(TREE)[1](jnp.float32(h))
    assert abs(square - promises.variance(TREE, tree)) < 6 * error + 1e-4


def test_a_tree_that_is_sent_whole_is_exact():
  for allocation in ('proportional', 'sqrt', (15, 1, 48)):
    op = layerwise(sketches.gaussian, 64, allocation)
    out = op.desketch(KEY, op.sketch(KEY, TREE), TREE)
    chex.assert_trees_all_equal(out, TREE)


def test_tables_no_smaller_than_their_leaf_are_not_used():
  """Of complex numbers a table of b holds 2 b floats."""
  op = layerwise(sketches.srft, 6, (4, 2))
  leaves = [jnp.arange(8.0), jnp.arange(6.0)]
  tables = op.zero_table(leaves)
  assert [t.dtype for t in tables] == [jnp.float32, jnp.complex64]
  assert promises_of(op).floats(leaves) == 8 + 4


def test_properties_are_those_of_the_worst_leaf():
  op, d = cyclic(20), (15, 1, 48)  # 5, 1 and 14
  p, b = promises_of(op), handed_out(op, d)
  one = lambda d, b: promises_of(sketches.block_cyclic(b)).alpha(d)
  assert p.floats(TREE) == p.floats(TREE['w']) == p.floats(48) == 20
  assert p.alpha(TREE) == max(one(*db) for db in zip(d, b, strict=True))
  assert p.alpha(64) == one(64, 20)
  assert p.coordinate_wise(TREE) == 20 * 2 / 5
  assert p.coordinate_wise(64) == 2
  assert p.alpha(jnp.ones(20)) == p.coordinate_wise(20) == 0  # raw
  assert (p.linear, p.adjoint_scale, p.orthogonal_rows) == (True, 1.0, False)
  flat = promises_of(sketches.block_cyclic(16)).alpha(256)
  assert promises_of(cyclic(16)).alpha(leaves_of((96, 32, 128))) == flat
  one = promises_of(sketches.srft(8))  # complex, against 16 raw numbers
  p = promises_of(layerwise(sketches.srft, 24, (8, 16)))
  want = one.coordinate_wise(64) / 8 * 24
  assert p.coordinate_wise(leaves_of((64, 16))) == pytest.approx(want)
  median = lambda b: sketches.count_sketch(3, -(-b // 3))
  p = promises_of(layerwise(median, 20))
  assert (p.alpha, p.coordinate_wise, p.linear) == (None, None, False)
  assert p.adjoint_scale is None
  mean = lambda b: sketches.count_sketch(2, -(-b // 2), combine='mean')
  p = promises_of(layerwise(mean, 20))  # that of raw leaves would be 1
  assert (p.linear, p.adjoint_scale) == (True, None)


def test_a_round_in_which_all_leaves_are_raw_is_fedavg():
  op = cyclic(cases.DIMENSION)
  options = {'sketch': op, 'server_optimizer': 'sgd'}
  raw, metrics = cases.play(algorithms.make('safl', cases.loss_fn, **options))
  fedavg, _ = cases.play(cases.ALGORITHMS['fedavg'].make)
  chex.assert_trees_all_close(raw.params, fedavg.params, atol=1e-6)
  assert metrics['uplink_bytes'] == 4 * cases.DIMENSION


def mixed(kind, rows):
  """Of a factory whose promises depend on the size of the table."""
  count = sketches.count_sketch
  op = layerwise(lambda b: count(rows(b), b // 2, combine=kind(b)), 20)
  return lambda: op.zero_table(TREE)


TABLES = cyclic(20).zero_table(TREE)
test_bad_arguments = refused_calls(
  (lambda: cyclic(0), 'size=0 must'),
  (lambda: cyclic(3, 'norm'), r"allocation='norm' must be in \('prop"),
  (lambda: cyclic(3, (4, -1)), r'\(4, -1\) must hold integers >= 0'),
  (lambda: cyclic(3, (1.5, 1.5)), r'\(1.5, 1.5\) must hold integers >= 0'),
  (lambda: cyclic(4, (1, 2)), r'\(1, 2\) has the sum 3, not size=4'),
  (lambda: cyclic(20).desketch(KEY, TABLES[:2], TREE),
    r'len\(tables\)=2 must be 3'),
  (lambda: cyclic(20).desketch(KEY, TABLES[::-1], TREE), r'table\.shape'),
  (mixed(lambda b: 'mean' if b > 8 else 'median', lambda b: 1),
    r"factory\(5\) is not 'linear'"),
  (mixed(lambda b: 'mean', lambda b: 1 + (b < 8)), r'adjoint_scale=2\.0'),
)  # fmt: skip


@pytest.mark.parametrize(('op', 'message'), [
  (cyclic(65), 'size=65 exceeds d=64'),
  (cyclic(2), 'size=2 must be >= 3'),
  (cyclic(9, (4, 5)), r'len\(rule\)=2 must be 3'),
  (cyclic(9, (9, 0, 0)), r'allocation\[1\]=0 must be >= 1'),
])  # fmt: skip
def test_bad_trees(op, message):
  operators.refuses(op, TREE, (jnp.ones(1),) * 3, message)
  with pytest.raises(ValueError, match=message):
    promises_of(op).floats(TREE)
