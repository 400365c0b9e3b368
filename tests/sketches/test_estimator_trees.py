"""What the estimators do with trees, devices, other operators and bad input."""

import chex
from fl_sketch import sketches
from fl_sketch.sketches import estimators
import jax
import jax.numpy as jnp
import numpy as np
import operators
import pytest

from tests.sketches import test_estimators
from tests.sketches.test_estimators import KEY, OP, TREE, mapped, mixes, vector


@pytest.mark.nightly
def test_one_coordinate_and_all():
  support, mix = mixes(OP, KEY, TREE, 64)
  assert sorted(support.tolist()) == list(range(64))
  chex.assert_trees_all_equal(mix[True], TREE)
  estimate = OP.desketch(KEY, OP.sketch(KEY, TREE), TREE)
  chex.assert_trees_all_close(mix[False], estimate, atol=1e-6)
  for hash in ('fresh', 'shared'):  # nothing is left for the second table
    out = estimators.heaprix(OP, KEY, TREE, 64, hash)
    chex.assert_trees_all_equal(out, TREE)
  one = jnp.array([3.0])
  assert estimators.heaprix(sketches.identity(), KEY, one, 1) == 3


def test_zeros_and_nans():
  for x in (mapped(jnp.zeros_like), TREE | {'b': (jnp.ones(15), jnp.nan)}):
    support, mix = mixes(OP, KEY, x, 20)
    assert len(set(support.tolist())) == 20
    assert np.isnan(vector(mix[False])).any() == np.isnan(vector(x)).any()


@pytest.mark.nightly
def test_trees_of_several_leaves_and_dtypes():
  tree = {
    'a': jnp.arange(60.0, dtype=jnp.bfloat16).reshape(6, 10) / 7,
    'b': [jnp.float32(20.1), jnp.zeros((0, 3)), np.ones(5, np.float32)],
  }
  like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)

  @operators.jit
  def everything(tree):
    table = OP.sketch(KEY, tree)
    support = estimators.heavy_support(OP, KEY, table, like, 6)
    values = estimators.gather(tree, support)
    mix = estimators.heavymix(OP, KEY, table, like, 6, values)
    return support, values, mix, estimators.scatter(tree, support, values)

  x = vector(tree).astype(np.float32)
  support, values, *trees = everything(tree)
  # The estimates are compared before they are rounded to bfloat16.
  want = test_estimators.twin_support(KEY, x, 6)[1]
  np.testing.assert_array_equal(support, want)
  assert values.dtype == jnp.float32
  np.testing.assert_array_equal(values, x[support])
  for out in trees:
    chex.assert_trees_all_equal_shapes_and_dtypes(out, tree)
  kept = np.zeros_like(x)
  kept[support] = values
  for out in trees:
    np.testing.assert_array_equal(vector(out), kept)


@pytest.mark.nightly  # trees of float64 and float32 are fast
def test_heaprix_is_rounded_once():
  """After both of its estimates are added."""
  x = jnp.arange(64, dtype=jnp.bfloat16) / 7
  both = lambda *xs: [estimators.heaprix(OP, KEY, x, 6) for x in xs]
  narrow, wide = operators.jit(both)(x, x.astype(jnp.float32))
  assert narrow.dtype == jnp.bfloat16
  np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=2**-8)


def test_put_and_take_numbers():
  at = jnp.array([1])
  assert estimators.gather([1.0, 2.0], at).tolist() == [2]
  assert estimators.scatter([1.0, 2.0], at, np.array([7.0])) == [0, 7]


@pytest.mark.representatives('srft')
@pytest.mark.parametrize(
  'op',
  [sketches.srft(40), sketches.count_sketch(4, 8, combine='mean')],
  ids=lambda op: op.properties.name,
)
def test_other_operators(op):
  """A spike of 300 among 63 numbers of size 1 is found by all."""
  x = jnp.ones(64).at[20].set(-300.0)

  @operators.jit
  def spike(x):
    table = op.sketch(KEY, x)
    support = estimators.heavy_support(op, KEY, table, x, 4)
    y = estimators.heaprix(op, KEY, x, 4)
    return estimators.l2_norm(table), support[0], y[20]

  norm, first, y = spike(x)
  assert 200 < norm < 500
  assert first == 20
  assert y < -200


def test_float64_stays_float64():
  op, x = sketches.identity(), np.random.default_rng(0).normal(size=8)
  tree = {'a': x[:3], 'b': x[3:].astype(np.float32)}

  @operators.jit
  def everything(tree):
    table = op.sketch(KEY, tree)
    support = estimators.heavy_support(op, KEY, table, tree, np.int64(8))
    values = estimators.gather(tree, support)
    y = estimators.heaprix(op, KEY, tree, 8, exact=False)
    return estimators.l2_norm(table), support, values, y

  with jax.enable_x64(True):
    norm, support, values, y = everything(tree)
  assert support.dtype == jnp.int32
  assert norm.dtype == values.dtype == jnp.float64
  np.testing.assert_array_equal(values, vector(tree)[support])
  chex.assert_trees_all_equal_shapes_and_dtypes(y, tree)
  chex.assert_trees_all_equal(y, tree)


def test_derivatives_flow_through_what_is_kept():
  def energy(x):
    out = estimators.heavymix(sketches.identity(), KEY, x, x, 3)
    return jnp.square(out).sum(), out

  slope, out = operators.jit(jax.grad(energy, has_aux=True))(jnp.arange(1.0, 9))
  assert jnp.count_nonzero(out) == 3
  np.testing.assert_array_equal(slope, 2 * out)


@pytest.mark.parametrize('k', [0, -1, 2.5, 65, None])
def test_bad_k(k):
  table = OP.sketch(KEY, TREE)
  match = 'k=65 exceeds d=64' if k == 65 else f'k={k} must be'
  for fn in (
    lambda: estimators.heavy_support(OP, KEY, table, TREE, k),
    lambda: estimators.heavymix(OP, KEY, table, TREE, k),
    lambda: estimators.heaprix(OP, KEY, TREE, k),
  ):
    with pytest.raises(ValueError, match=match):
      fn()


@pytest.mark.parametrize(
  ('table', 'error', 'match'),
  [
    ([jnp.ones(3), jnp.ones(4)], TypeError, 'list.* must be one array'),
    (3.0, TypeError, 'float.* must be one array'),
    (jnp.ones((5, 8), jnp.int32), TypeError, r"table\.dtype='int32'"),
    (jnp.float32(1.0), ValueError, r'table\.(ndim|shape)='),
    (jnp.ones((2, 3, 4)), ValueError, r'table\.(ndim|shape)='),
  ],
)
def test_bad_tables(table, error, match):
  # What an operator with tables of its own kind hands to `heaprix`.
  op = OP._replace(sketch=lambda key, tree: table)
  for fn in (
    lambda: estimators.l2_norm(table),
    lambda: estimators.heavy_support(OP, KEY, table, TREE, 3),
    lambda: estimators.heavymix(OP, KEY, table, TREE, 3),
    lambda: estimators.heaprix(op, KEY, TREE, 3),
  ):
    with pytest.raises(error, match=match):
      fn()


def test_bad_arguments():
  table = OP.sketch(KEY, TREE)
  for bad in (jnp.ones(4), jnp.ones((3, 1))):
    with pytest.raises(ValueError, match=r'exact\.shape=\(.*\) must be \(3,\)'):
      estimators.heavymix(OP, KEY, table, TREE, 3, bad)
  with pytest.raises(
    ValueError, match="hash='same' must be 'fresh' or 'shared'"
  ):
    estimators.heaprix(OP, KEY, TREE, 3, hash='same')
  with pytest.raises(ValueError, match=r'rows=5 \* cols=8 exceeds d=39'):
    estimators.heaprix(OP, KEY, jnp.ones(39), 3)
  with pytest.raises(ValueError, match=r'shape=\(2,\) must be \(3,\)'):
    estimators.scatter(TREE, jnp.arange(3), jnp.ones(2))
  for bad in (jnp.ones(64, jnp.int32), jnp.ones(64, jnp.complex64)):
    with pytest.raises(TypeError, match=f"dtype='{bad.dtype}'"):
      estimators.heaprix(OP, KEY, bad, 3)
    with pytest.raises(TypeError, match=f"dtype='{bad.dtype}'"):
      estimators.gather({'w': bad}, jnp.arange(3))
