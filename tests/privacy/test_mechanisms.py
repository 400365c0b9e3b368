"""Sums of bounded contributions, and their noise; false alarms below 1e-6."""

import cases
from fl_sketch.privacy.mechanisms import grid, sums as m
import jax
import jax.numpy as jnp
import numpy as np
from private_cases import has_stddev, uncorrelated
import pytest
from scipy import stats

KEY = jax.random.key(11)
C = 1.5
ROWS = 6
OFF = {'max_norm': C, 'noise_multiplier': 0.0}
privatize = cases.jit(m.privatize_sum, static_argnames='bound')
noise_of = cases.jit(m.gaussian_noise)
EACH_BOUND = pytest.mark.parametrize('bound', ['clip', 'normalize'])


def flat(tree):
  leaves = [np.ravel(np.asarray(x)) for x in jax.tree.leaves(tree)]
  x = np.concatenate(leaves)
  return np.concatenate([x.real, x.imag]) if np.iscomplexobj(x) else x


def distance(x, y):
  return np.linalg.norm(flat(x).astype('f8') - flat(y).astype('f8'))


def contributions(seed=0):
  """Rows of very different sizes."""
  rng = np.random.default_rng(seed)
  scale = 10.0 ** rng.uniform(-3, 3, (ROWS, 1))
  rows = (scale * rng.normal(size=(ROWS, 9))).astype('f4')
  return {'a': rows[:, :3], 'b': rows[:, 3:].reshape(ROWS, 2, 3)}


ADVERSARIES = {
  'zero': np.zeros(9), 'within': np.full(9, 0.01), 'spike': np.eye(9)[0] * 1e6,
  'huge': np.full(9, 3.4e38), 'tiny': np.full(9, 1e-42),
  'mixed': np.geomspace(1e-37, 1e37, 9), 'nan': np.array([np.nan] + [5.0] * 8),
  'inf': np.array([-np.inf, np.inf] + [-7.0] * 7),
}  # fmt: skip


def with_row(rows, i, row):
  row = np.float32(row)
  out = jax.tree.map(np.copy, rows)
  out['a'][i], out['b'][i] = row[:3], row[3:].reshape(2, 3)
  return out


@EACH_BOUND
@pytest.mark.parametrize('adversary', ADVERSARIES)
def test_one_row_more_moves_a_sum_by_at_most_c(bound, adversary):
  rows, everyone = contributions(), np.ones(ROWS, 'f4')
  total = lambda x, mask: privatize(KEY, x, mask, bound=bound, **OFF)
  without = everyone.copy()
  without[2] = 0
  rounding = ROWS * C * 1e-6
  base = total(rows, without)
  # Only the sign of a mask counts.
  weights = np.float32([0.5, 7, np.nan, 1, 2, np.inf])
  for sign in 1, -1:
    x = with_row(rows, 2, sign * ADVERSARIES[adversary])
    moved = total(x, everyone)
    assert distance(moved, base) <= C + rounding
    assert distance(total(x, weights), base) == 0  # nobody sees who is absent
    for other in ADVERSARIES.values():
      y = total(with_row(rows, 2, other), everyone)
      assert distance(moved, y) <= 2 * C + rounding


@pytest.mark.covers('S0-H6, H7')
def test_the_sensitivities_are_attained():
  """So that a bound twice as tight as needed would be seen, too."""
  rows, everyone = contributions(), np.ones(ROWS, 'f4')
  x = with_row(rows, 0, np.eye(9)[4] * 1e30)
  y = with_row(rows, 0, np.eye(9)[4] * -1e30)
  total = lambda x, mask: privatize(KEY, x, mask, **OFF)
  gap = distance(total(x, everyone), total(y, everyone))
  assert gap == pytest.approx(2 * C, rel=1e-5)
  gap = distance(total(x, everyone), total(x, 1.0 * (np.arange(ROWS) > 0)))
  assert gap == pytest.approx(C, rel=1e-5)


def test_noise_is_the_same_whoever_takes_part():
  options = {'max_norm': C, 'noise_multiplier': 2.0, 'bound': 'clip'}
  rows = contributions()
  nothing = jax.tree.map(np.zeros_like, rows)
  none = privatize(KEY, rows, np.zeros(ROWS, 'f4'), **options)
  points = grid.make(clip_norm=C, noise_multiplier=2.0, clients=ROWS)
  like = grid.encode(jax.tree.map(lambda x: x[0], rows), points)
  alone = grid.decode(grid.noise(KEY, like, points), points)
  np.testing.assert_allclose(flat(none), flat(alone), rtol=1e-6)
  for bits in range(0, 2**ROWS, 9):  # nobody, everybody, and six in between
    mask = np.float32([bits >> i & 1 for i in range(ROWS)])
    # Zeros add nothing, hence the noise is there bit for bit.
    np.testing.assert_array_equal(
      flat(privatize(KEY, nothing, mask, **options)), flat(none)
    )
    quiet = privatize(KEY, rows, mask, **options | {'noise_multiplier': 0.0})
    noise = flat(privatize(KEY, rows, mask, **options)) - flat(quiet)
    np.testing.assert_allclose(noise, flat(none), atol=1e-5)


@pytest.mark.covers('S1-Def2')
def test_noise_is_normal():
  n = 3 * 10**5
  x = np.asarray(noise_of(KEY, jnp.zeros(n), 3.0), 'f8')
  assert abs(x.mean()) < 5.5 * 3.0 / n**0.5
  assert has_stddev(x, 3.0)
  assert not has_stddev(x, 3.0 * 1.01)  # the test has power
  assert stats.kstest(x / 3.0, 'norm').pvalue > 1e-7
  # Beyond 4 standard deviations, where rounding shows first.
  tail = np.sum(abs(x) > 4 * 3.0)
  assert stats.binomtest(int(tail), n, 2 * stats.norm.sf(4)).pvalue > 1e-7
  assert uncorrelated(x[:-1], x[1:])


def test_noise_is_float32_at_least_and_in_both_parts():
  n = 20000
  like = {'x': jnp.zeros(n, 'bfloat16'), 'z': jnp.zeros(n, 'complex64')}
  x, z = map(np.asarray, noise_of(KEY, like, 1.0).values())
  assert x.dtype == 'float32'
  assert z.dtype == 'complex64'
  assert len(np.unique(x)) > 19000  # bfloat16 has no so many numbers
  assert all(has_stddev(part, 1.0) for part in (x, z.real, z.imag))
  assert uncorrelated(z.real, z.imag)
  assert uncorrelated(x, z.real)  # leaves have keys of their own


def test_a_bound_that_does_not_exist_is_refused():
  """Catches a name that is read as no bound."""
  with pytest.raises(ValueError, match='bound'):
    privatize(KEY, np.ones((2, 3)), np.ones(2), bound='clamp', **OFF)
