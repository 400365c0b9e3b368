"""The heavy coordinates of a table: HEAVYMIX, HEAPRIX and what they rest on."""

import functools
import itertools

import chex
from fl_sketch import sketches
from fl_sketch.sketches import estimators, hashing
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, mean_and_error
import pytest

OP = sketches.count_sketch(5, 8)
TREE = operators.TREE | {'b': (operators.TREE['b'][0], jnp.float32(-9.0))}
WIDE, D, K = sketches.count_sketch(5, 100), 2000, 100


def vector(tree):
  return operators.vector(tree).astype(np.float64)


def shape(name, d=D):
  """f32[d] of norm 1, so that errors are ratios."""
  rng = np.random.default_rng(0)
  signs = rng.choice([-1.0, 1.0], d)
  x = {
    'heavy': signs * np.arange(1.0, d + 1) ** -0.6,
    'normal': rng.normal(size=d),
  }[name]
  return jnp.asarray(x / np.linalg.norm(x), jnp.float32)


def mixes(op, key, x, k):
  """The support, and HEAVYMIX by estimates (False) and exact values (True)."""
  table = op.sketch(key, x)
  support = estimators.heavy_support(op, key, table, x, k)
  mix = functools.partial(estimators.heavymix, op, key, table, x, k)
  return support, {False: mix(), True: mix(estimators.gather(x, support))}


def over_keys(fn, n, x, jit=operators.jit):
  """fn(key, x) under n keys: leaves [n, ...]."""
  keys = jax.random.split(jax.random.key(1), n)
  return jit(jax.vmap(fn, (0, None)))(keys, x)


# Eagerly its loops would be compiled at every call.
sample = jax.jit(hashing.sample, static_argnums=(1, 2))


def twin_support(key, x, k):
  """Lists and loops over given estimates: Algorithm 3 of the paper."""
  table = OP.sketch(key, x)
  g = vector(OP.desketch(key, table, x))
  square = np.median(np.square(np.asarray(table, np.float64)).sum(1))
  by_size = sorted(range(g.size), key=lambda i: (-abs(g[i]), i))
  heavy = [i for i in by_size if g[i] ** 2 >= square / k][:k]
  fill = jax.random.fold_in(key, estimators.FILL)
  order = sample(fill, min(2 * k, g.size), g.size).tolist()
  rest = [i for i in order if i not in heavy]
  return g, (heavy + rest)[:k]


def twin_mix(key, x, k, exact):
  g, support = twin_support(key, x, k)
  out, values = np.zeros(g.size), vector(x) if exact else g
  out[support] = values[support]
  return out


def test_heavymix_is_its_twin():
  """More than k are heavy, and less, and k is all."""
  for key, k in zip(jax.random.split(KEY, 3), (20, 20, 64), strict=True):
    support, out = mixes(OP, key, TREE, k)
    assert support.dtype == jnp.int32
    np.testing.assert_array_equal(support, twin_support(key, TREE, k)[1])
    for exact in (False, True):
      chex.assert_trees_all_equal_shapes_and_dtypes(out[exact], TREE)
      want = twin_mix(key, TREE, k, exact)
      np.testing.assert_allclose(vector(out[exact]), want, rtol=1e-6)


def test_heaprix_is_its_twin():
  x = vector(TREE)
  draw = functools.partial(estimators.heaprix, OP, KEY, TREE, 20)
  chex.assert_trees_all_equal(draw(), draw('fresh', True))
  for hash, exact in itertools.product(('fresh', 'shared'), (True, False)):
    other = jax.random.fold_in(KEY, estimators.FRESH)
    second = other if hash == 'fresh' else KEY
    r = jax.vmap(OP.sketch, (None, 0), 2)(second, jnp.eye(64))
    y1 = twin_mix(KEY, TREE, 20, exact)
    table = np.asarray(r, np.float64) @ (x - y1)
    y2 = np.median(np.einsum('jci,jc->ji', r, table), 0)
    got = vector(draw(hash, exact))
    np.testing.assert_allclose(got, y1 + y2, atol=1e-5)


def test_fill_is_uniform_on_the_complement():
  # Five places times 47 coordinates within 7 standard errors: 2e-7 to miss one,
  # by Bernstein's inequality.
  op, n, heavy = sketches.identity(), 20000, [40, 17, 3]
  x = jnp.zeros(50).at[jnp.array(heavy)].set(jnp.array([-9.0, 7, 5]))
  fn = lambda key, x: estimators.heavy_support(op, key, x, x, 8)
  supports = np.asarray(over_keys(fn, n, x))
  np.testing.assert_array_equal(supports[:, :3], np.tile(heavy, (n, 1)))
  counts = np.stack([np.bincount(c, minlength=50) for c in supports[:, 3:].T])
  assert counts[:, heavy].sum() == 0
  light, p = np.delete(counts, heavy, axis=1), 1 / 47
  assert np.abs(light - n * p).max() < 7 * np.sqrt(n * p * (1 - p))


def test_scale_and_sign():
  """A power of two is bit-exact, also where squares vanish or overflow."""
  support, out = mixes(OP, KEY, TREE, 20)
  for c in (1024.0, 2.0**-80, 2.0**66, -1.0):
    times_c = functools.partial(jax.tree.map, lambda x, c=c: c * x)
    want = support, {exact: times_c(y) for exact, y in out.items()}
    chex.assert_trees_all_equal(mixes(OP, KEY, times_c(TREE), 20), want)


def mix_draw(key, x):
  """By `exact`: ||x - HM||^2."""
  _, mix = mixes(WIDE, key, x, K)
  return {exact: jnp.square(mix[exact] - x).sum() for exact in mix}


def shared_draw(key, x):
  """By `exact`: <y, x> of HEAPRIX with a shared hash."""
  draw = functools.partial(estimators.heaprix, WIDE, key, x, K, 'shared')
  return {exact: draw(exact) @ x for exact in (True, False)}


@functools.cache
def measured(fn, name):
  """The means and standard errors of what is drawn, over 500 keys."""
  return jax.tree.map(mean_and_error, over_keys(fn, 500, shape(name), jax.jit))


# (what is drawn, of which x, with exact values) -> a bound, and its side.
BOUNDS = {
  (mix_draw, 'heavy', True): (1 - K / D, -1),
  (mix_draw, 'normal', True): (1 - K / D, -1),
  (mix_draw, 'normal', False): (1, 1),
  (shared_draw, 'heavy', True): (1, -1),
  (shared_draw, 'normal', False): (1, -1),
}


@pytest.mark.nightly  # the twins are fast
@pytest.mark.xdist_group('ratios')  # which share the program of `measured`
@pytest.mark.parametrize(('fn', 'name', 'exact'), BOUNDS)
def test_ratios_are_those_documented(fn, name, exact):
  """Catches a contraction that is none, and a bias that is not documented."""
  # 5 comparisons at 6 standard errors: 5e-9 that one of them errs.
  bound, side = BOUNDS[fn, name, exact]
  mean, error = measured(fn, name)[exact]
  assert (mean - bound) * side > 6 * error


@pytest.mark.nightly
def test_fresh_heaprix_is_unbiased():
  # 2 x 64 coordinates within 6 standard errors: 3e-7 to miss one.
  def fresh(key, x):
    draw = functools.partial(estimators.heaprix, OP, key, x, 20)
    return draw(exact=True), draw(exact=False)

  x = shape('normal', 64)
  for draws in over_keys(fresh, 4000, x):
    mean, error = mean_and_error(draws)
    assert error.max() < 0.02
    assert (np.abs(mean - x) < 6 * error + 1e-6).all()


def test_norm_has_its_law():
  # Two moments of a vector within 6 standard errors: 4e-9 to miss one.
  def norms(key, x):
    table = sketches.count_sketch(15, 32).sketch(key, x)
    return table, jnp.square(estimators.l2_norm(table))

  x = shape('heavy', 500)
  tables, squares = over_keys(norms, 400, x)
  rows = np.square(np.asarray(tables, np.float64)).sum(2)
  np.testing.assert_allclose(squares, np.median(rows, 1), rtol=1e-5)
  mean, error = mean_and_error(rows.ravel())
  assert abs(mean - 1) < 6 * error
  variance, error = mean_and_error(np.square(rows.ravel() - 1))
  want = 2 / 32 * (1 - np.sum(vector(x) ** 4))
  assert error < 0.1 * want
  assert abs(variance - want) < 6 * error
  # A row is off by half in 5 % of draws, far from its bound; 8 of 15 at once in
  # some 1e-7.
  assert (np.abs(rows - 1) > 0.5).mean() < 8 / 32
  assert (np.abs(squares - 1) > 0.5).mean() < np.exp(-15 / 8)


@pytest.mark.nightly
def test_heaprix_is_rounded_once_and_finds_a_spike_in_complex_tables():
  """Catches bfloat16 between two estimates, and real parts in a support."""
  x = jnp.arange(64, dtype=jnp.bfloat16) / 7
  both = lambda *xs: [estimators.heaprix(OP, KEY, x, 6) for x in xs]
  narrow, wide = operators.jit(both)(x, x.astype(jnp.float32))
  assert narrow.dtype == jnp.bfloat16
  np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=2**-8)
  # A spike in complex tables, of which real parts alone are not enough.
  op, x = sketches.srft(40), jnp.ones(64).at[20].set(-300.0)

  @operators.jit
  def spike(x):
    table = op.sketch(KEY, x)
    support = estimators.heavy_support(op, KEY, table, x, 4)
    return support[0], estimators.heaprix(op, KEY, x, 4)[20]

  first, y = spike(x)
  assert first == 20
  assert y < -200


def test_zeros_and_nans_and_norms_of_other_types():
  """Catches sums in bfloat16, which stay at 256, and i^2 for |i|^2."""
  zeros = jax.tree.map(jnp.zeros_like, TREE)
  for x in (zeros, TREE | {'b': (jnp.ones(15), jnp.nan)}):
    support, mix = mixes(OP, KEY, x, 20)
    assert len(set(support.tolist())) == 20
    assert np.isnan(vector(mix[False])).any() == np.isnan(vector(x)).any()
  assert estimators.l2_norm(np.ones(1024, jnp.bfloat16)) == 32
  assert estimators.l2_norm(np.complex64([3j, 4])) == 5


def test_float64_stays_float64():
  op, x = sketches.identity(), np.random.default_rng(0).normal(size=8)
  tree = {'a': x[:3], 'b': x[3:].astype(np.float32)}
  heaprix = lambda tree: estimators.heaprix(op, KEY, tree, 8, exact=False)
  with jax.enable_x64(True):
    y = operators.jit(heaprix)(tree)
  chex.assert_trees_all_equal_shapes_and_dtypes(y, tree)
  chex.assert_trees_all_equal(y, tree)


def test_tables_whose_norms_are_not_kept_are_refused():
  """Catches thresholds of another scale."""
  scaled = operators.stating(OP, name='scaled')
  with pytest.raises(ValueError, match='norms'):
    estimators.heavy_support(scaled, KEY, jnp.ones((5, 8)), TREE, 3)
