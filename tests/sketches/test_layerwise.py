"""Layer-wise sketching: who gets how much, and what the blocks add up to."""

import functools
from typing import Any

import cases
import chex
from fl_sketch import algorithms, sketches
from fl_sketch.sketches.layerwise import layerwise
import jax
import jax.numpy as jnp
import operators
from operators import KEY, TREE
import pytest
from refusals import refused_calls

promises_of: Any = sketches.properties
cyclic: Any = functools.partial(layerwise, sketches.block_cyclic)
count_rows = lambda b: sketches.count_sketch(1, b, combine='mean')
# Each with its factory and the b_l that it gives the leaves of TREE.
OPERATORS = {
  'proportional': (cyclic(22), sketches.block_cyclic, (5, 1, 16)),
  'sqrt': (layerwise(count_rows, 20, 'sqrt'), count_rows, (7, 1, 12)),
  'explicit': (
    layerwise(sketches.gaussian, 29, (21, 2, 6)),
    sketches.gaussian,
    (15, 1, 6),
  ),
}


def leaves_of(sizes):
  return [jax.ShapeDtypeStruct((d,), jnp.float32) for d in sizes]


def handed_out(op, sizes):
  tables = jax.eval_shape(op.zero_table, leaves_of(sizes))
  return tuple(table.size for table in tables)


@pytest.mark.representatives('proportional', 'explicit')
@pytest.mark.parametrize('name', OPERATORS)
def test_each_leaf_has_its_own_operator(name):
  op, factory, sizes = OPERATORS[name]
  leaves = jax.tree.leaves(TREE)

  def one_leaf(key, i, x, b):
    if b == x.size:
      return jnp.ravel(x), x
    one, key = factory(b), jax.random.fold_in(key, i)
    return (table := one.sketch(key, x)), one.desketch(key, table, x)

  @operators.jit
  def both(key):
    tables = op.sketch(key, TREE)
    out = jax.tree.leaves(op.desketch(key, tables, TREE))
    want = map(one_leaf, [key] * 3, range(3), leaves, sizes)
    return list(zip(tables, out, strict=True)), list(want)

  got, want = both(KEY)
  chex.assert_trees_all_close(got, want, atol=1e-6)
  for x, b, (_, out) in zip(leaves, sizes, got, strict=True):
    assert b < x.size or (out == x).all()


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
  assert p.linear
  assert not p.orthogonal_rows
  flat = promises_of(sketches.block_cyclic(16)).alpha(256)
  p = promises_of(cyclic(16))
  assert p.alpha(leaves_of((96, 32, 128))) == flat
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


def test_every_leaf_has_a_table_if_only_an_empty_one():
  assert handed_out(cyclic(40), (1, 0, 5, 72)) == (1, 0, 3, 36)


def test_a_round_in_which_all_leaves_are_raw_is_fedavg():
  op = cyclic(cases.DIMENSION)
  options = {'sketch': op, 'server_optimizer': 'sgd'}
  raw, metrics = cases.play(algorithms.make('safl', cases.loss_fn, **options))
  fedavg, _ = cases.play(cases.ALGORITHMS['fedavg'].make)
  chex.assert_trees_all_close(raw.params, fedavg.params, atol=1e-6)
  assert metrics['uplink_bytes'] == 4 * cases.DIMENSION


test_bad_arguments = refused_calls(
  (lambda: cyclic(0), 'size=0 must'),
  (lambda: cyclic(3, 'norm'), r"allocation='norm' must be in \('prop"),
  (lambda: cyclic(3, (4, -1)), r'\(4, -1\) must hold integers >= 0'),
  (lambda: cyclic(3, (1.5, 1.5)), r'\(1.5, 1.5\) must hold integers >= 0'),
  (lambda: cyclic(4, (1, 2)), r'\(1, 2\) has the sum 3, not size=4'),
)


@pytest.mark.parametrize(
  ('op', 'message'),
  [
    (cyclic(65), 'size=65 exceeds d=64'),
    (cyclic(2), 'size=2 must be >= 3'),
    (cyclic(9, (4, 5)), r'len\(rule\)=2 must be 3'),
    (cyclic(9, (9, 0, 0)), r'allocation\[1\]=0 must be >= 1'),
  ],
)
def test_bad_trees(op, message):
  operators.refuses(op, TREE, (jnp.ones(1),) * 3, message)
  with pytest.raises(ValueError, match=message):
    promises_of(op).floats(TREE)


def test_bad_tables():
  op = cyclic(20)
  tables = op.zero_table(TREE)
  with pytest.raises(ValueError, match=r'len\(tables\)=2 must be 3'):
    op.desketch(KEY, tables[:2], TREE)
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, tables[::-1], TREE)


def test_a_factory_keeps_to_what_it_promises():
  kind = lambda b: 'mean' if b > 8 else 'median'
  mixed = lambda b: sketches.count_sketch(1, b, combine=kind(b))
  with pytest.raises(ValueError, match=r"factory\(5\) is not 'linear'"):
    layerwise(mixed, 20).zero_table(TREE)
  rows = lambda b: sketches.count_sketch(1 + (b < 8), b // 2, combine='mean')
  with pytest.raises(ValueError, match=r'adjoint_scale=2\.0'):
    layerwise(rows, 20).zero_table(TREE)
