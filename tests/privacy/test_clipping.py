"""Bounds on a norm hold for any float there is, measured in float64."""

from fl_sketch.privacy.mechanisms import clipping
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

SLACK = 1 + 1e-6
FULL = np.finfo(np.float32).max
# As many shapes as trees, or every example would compile anew.
clip, normalize = (
  jax.jit(f, static_argnames='per_leaf')
  for f in (clipping.clip_by_l2_norm, clipping.normalize_by_l2_norm)
)
BOTH = pytest.mark.parametrize('bound', [clip, normalize], ids=['clip', 'norm'])
PER_LEAF = pytest.mark.parametrize('per_leaf', [False, True])
laws = settings(deadline=None, derandomize=True, max_examples=60)
ANY = st.floats(width=32)  # NaN, infinities, subnormals
FINITE = st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False)
BOUND = st.floats(2.0**-60, 2.0**100, width=32)


def size(tree):
  """The norm in float64, without squares that leave it."""
  leaves = [np.ravel(np.asarray(x)) for x in jax.tree.leaves(tree)]
  wide = [
    np.abs(x.astype('c16' if x.dtype.kind == 'c' else 'f8')) for x in leaves
  ]
  return np.linalg.norm(np.concatenate(wide))


def tree_of(numbers):
  a, b, c = np.split(np.array(numbers, np.float32), [1, 3])
  return {'a': a[0], 'b': (b, c.reshape(2, -1))}


def scaled(tree, a):
  return jax.tree.map(lambda x: x * np.float32(a), tree)


@BOTH
def test_numbers_whose_inverse_is_subnormal(bound):
  """XLA divides by m by multiplying by 1 / m, which may be 0."""
  u = np.float32([FULL] * 50)
  for per_leaf in False, True:
    out, _ = bound([u, u[:1]], 1.0, per_leaf=per_leaf)
    assert 1 - 3e-6 <= size(out) <= SLACK


TREES = st.lists(ANY, min_size=9, max_size=9).map(tree_of)


@pytest.mark.representatives('clip-False', 'norm-True')
@PER_LEAF
@BOTH
@laws
@given(tree=TREES, max_norm=BOUND)
def test_the_norm_of_any_tree_is_bounded(bound, per_leaf, tree, max_norm):
  out, _ = bound(tree, max_norm, per_leaf=per_leaf)
  assert size(out) <= max_norm * SLACK
  if per_leaf:
    each = max_norm / 3**0.5 * SLACK
    assert all(size(x) <= each for x in jax.tree.leaves(out))


@laws
@given(
  numbers=st.lists(FINITE, min_size=9, max_size=9), factor=st.floats(1.001, 1e6)
)
def test_a_tree_within_the_bound_comes_back(numbers, factor):
  tree = tree_of(numbers)
  max_norm = np.float32(min(factor * size(tree), FULL))
  if max_norm < 1.0001 * size(tree):
    return
  out, norm = clip(tree, max_norm)
  jax.tree.map(np.testing.assert_array_equal, out, tree)
  np.testing.assert_allclose(norm, size(tree), rtol=1e-6)


@BOTH
@pytest.mark.parametrize('scale', [1e-37, 1.0, 2e38])
def test_a_scaled_tree_has_norm_c_and_its_direction(bound, scale):
  """Catches squares that leave float32, and leaves of other shares."""
  tree = {'a': np.float32([0.3, -0.4]), 'b': np.float32([[0.0, 1.2]])}
  lengths = {False: [size(tree)] * 2, True: [0.5 * 2**0.5, 1.2 * 2**0.5]}
  for per_leaf, each in lengths.items():
    u, c = scaled(tree, scale), 1e-3 * scale
    out, norm = bound(u, c, per_leaf=per_leaf)
    assert norm == pytest.approx(size(u), rel=1e-6)
    for name, length in zip(tree, each, strict=True):
      want = c * tree[name].astype('f8') / length
      np.testing.assert_allclose(out[name], want, rtol=3e-6, atol=1e-40)


@BOTH
def test_zeros_and_what_is_not_finite(bound):
  """Catches a NaN that spreads, and a norm of 0 that divides."""
  for value in 0.0, -0.0, np.nan, np.inf, -np.inf:
    tree = {'a': np.full(3, value, 'f4'), 'b': np.zeros((0, 2), 'f4')}
    out, norm = bound(tree, 1.0)
    assert norm == 0
    assert not np.asarray(out['a']).any()
    out, norm = bound({'a': np.float32([value, 3, 4])}, 5.0)
    np.testing.assert_allclose(out['a'], [0, 3, 4], rtol=2e-6)
    assert norm == 5


@BOTH
@pytest.mark.parametrize('dtype', ['bfloat16', 'complex64'])
def test_types(bound, dtype):
  """Norms are not those of bfloat16, which are off by a percent."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(300,)) + 1j * rng.normal(size=(300,))
  x = jnp.asarray(x if dtype == 'complex64' else x.real, dtype)
  kept = 'complex64' if dtype == 'complex64' else 'float32'
  wide = np.asarray(x, 'c16' if dtype == 'complex64' else 'f8')
  for c in 0.37, 1.0, 11.3:
    out, norm = bound({'x': x}, c)
    assert out['x'].dtype == kept
    assert size(out) <= c * SLACK
    np.testing.assert_allclose(norm, size(wide), rtol=1e-6)
    want = wide * c / size(wide)
    np.testing.assert_allclose(out['x'], want, rtol=5e-6, atol=1e-7)
  for scale in (1e-30, 3e38) if dtype == 'complex64' else ():
    x = np.array([3 + 4j, 1j, -5], 'c8') / 8 * np.float32(scale)
    x[1] = complex(np.nan, 1)
    out, _ = bound(x, 2.0)
    assert size(out) <= 2 * SLACK
    assert not np.asarray(out)[1]


def long_vectors():
  """Random ones, and ones whose squares are lost beside a large one."""
  d, rng = 10**4, np.random.default_rng(0)
  for spread in 0, 4, 20:
    yield np.exp(spread * rng.normal(size=d).clip(-4, 4)).astype('f4')
  for small in 2.4e-4, 2.4e-5:  # squares near half a unit in the last place
    for at in 0, d // 2:
      x = np.full(d, small, 'f4')
      x[at] = 1
      yield x
  # Leaves that a running sum would lose.
  yield [np.float32(1)] + [np.float32(2.4e-4)] * 80


def test_sums_of_many_squares():
  for x in long_vectors():
    # The bound is just below the norm, where an error would show as identity.
    for part in 0.5, 1 - 9e-7, 1 - 2e-6, 1 - 1e-5:
      c = np.float32(part * size(x))
      assert size(clip(x, c)[0]) <= np.float64(c) * SLACK
      if part == 0.5:
        assert size(normalize(x, c)[0]) <= np.float64(c) * SLACK
        assert size(clip(x, c)[0]) >= np.float64(c) * (1 - 3e-6)
