"""HEAVYMIX and HEAPRIX of NaN, complex and float64 inputs."""

import chex
from fl_sketch import sketches
from fl_sketch.sketches import estimators
import jax
import jax.numpy as jnp
import numpy as np
import operators
import pytest

from tests.sketches.test_estimators import KEY, OP, TREE, mixes, vector


def test_zeros_and_nans():
  zeros = jax.tree.map(jnp.zeros_like, TREE)
  for x in (zeros, TREE | {'b': (jnp.ones(15), jnp.nan)}):
    support, mix = mixes(OP, KEY, x, 20)
    assert len(set(support.tolist())) == 20
    assert np.isnan(vector(mix[False])).any() == np.isnan(vector(x)).any()


@pytest.mark.nightly  # trees of float64 and float32 are fast
def test_heaprix_is_rounded_once():
  """After both of its estimates are added."""
  x = jnp.arange(64, dtype=jnp.bfloat16) / 7
  both = lambda *xs: [estimators.heaprix(OP, KEY, x, 6) for x in xs]
  narrow, wide = operators.jit(both)(x, x.astype(jnp.float32))
  assert narrow.dtype == jnp.bfloat16
  np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=2**-8)


def test_complex_tables():
  """A spike of 300 among 63 numbers of size 1 is found."""
  op, x = sketches.srft(40), jnp.ones(64).at[20].set(-300.0)

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


@pytest.mark.parametrize('k', [0, 65, 2.5])
def test_a_k_that_does_not_fit_is_refused(k):
  with pytest.raises(ValueError, match='k='):
    estimators.heavy_support(OP, KEY, jnp.ones((5, 8)), TREE, k)


def test_tables_whose_norms_are_not_kept_are_refused():
  """Catches thresholds of another scale, and tables of several leaves."""
  scaled = OP._replace(properties=OP.properties._replace(name='scaled'))
  with pytest.raises(ValueError, match='norms'):
    estimators.heavy_support(scaled, KEY, jnp.ones((5, 8)), TREE, 3)
  with pytest.raises(TypeError, match='table'):
    estimators.l2_norm([jnp.ones(3)])


def test_other_hashes_and_shapes_are_refused():
  with pytest.raises(ValueError, match='hash'):
    estimators.heaprix(OP, KEY, TREE, 3, hash='same')
  with pytest.raises(ValueError, match='values'):
    estimators.scatter(TREE, jnp.arange(3), jnp.ones(2))
