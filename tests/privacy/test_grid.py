"""The grid of private sums: its bound, its noise and its account."""

import functools
import itertools

import cases
from fl_sketch.accounting import gaussian
from fl_sketch.privacy.mechanisms import clipping, discrete_gaussian, grid
import jax.numpy as jnp
import numpy as np
import pytest

# (clip norm, noise multiplier, clients, shares, honest)
GRIDS = [
  (0.3, 0.05, 6, 1, 1), (1e-20, 20.0, 1000, 1, 1), (1e20, 3e3, 65_537, 1, 1),
  (2.0, 0.7, 100, 100, 60), (1.0, 1.0, 65_537, 65_537, 65_537),
]  # fmt: skip
each_grid = pytest.mark.parametrize('numbers', GRIDS)


def made(bound, z, clients, shares=1, honest=1):
  return grid.make(
    clip_norm=bound, noise_multiplier=z, clients=clients, shares=shares,
    honest=honest,
  )  # fmt: skip


def deviation(points):
  """Of a share of the noise, in steps."""
  return discrete_gaussian.stddev(points.base, int(points.multiple))


@each_grid
def test_the_noise_is_that_of_the_multiplier_and_hardly_more(numbers):
  """Catches noise that is too small for the account, and sums that wrap."""
  bound, z, clients, shares, honest = numbers
  points = made(*numbers)
  assert z >= grid.least_multiplier(*numbers[2:])
  effective = np.sqrt(deviation(points) ** 2 - 9) * np.float64(points.step)
  wanted = z * bound / honest**0.5
  assert wanted * (1 + 2e-6) <= effective <= wanted * (1 + 1e-5)
  longest = bound * (1 + 1e-6) / np.float64(points.step)
  noise = 13.3 * shares**0.5 * deviation(points)
  assert clients * longest + noise < 2**31


@functools.partial(cases.jit, static_argnames='bound_by')
def encoded(u, bound, step, bound_by):
  kept, _ = clipping.BOUNDS[bound_by](u, bound)
  points = grid.Grid(step, jnp.array(True), jnp.int32(0), 16)
  return grid.encode(kept, points)


@each_grid
@pytest.mark.parametrize('bound_by', list(clipping.BOUNDS))
def test_integers_of_a_contribution_are_no_longer_than_its_bound(
  numbers, bound_by
):
  """Catches rounding to the nearest, and floats that scale a norm up."""
  bound, points = numbers[0], made(*numbers)
  rng = np.random.default_rng(1)
  most = np.float64(bound) * (1 + 4e-6) / np.float64(points.step)
  for size in 1, 3, 1000:
    for u in rng.normal(size=size), np.ones(size), np.eye(size)[0]:
      u = jnp.float32(1e3 * bound * u)
      steps = encoded(u, jnp.float32(bound), points.step, bound_by=bound_by)
      steps = np.asarray(steps).view('i4').tolist()
      square = sum(k * k for k in steps)  # exact, in Python's integers
      assert square <= most**2
      assert square > 0 or most**2 < size


def test_too_small_a_multiplier_makes_the_noise_louder_and_is_named():
  """Catches noise of no step, or a least multiplier that is not least."""
  for clients, count in (65_537, 1), (1000, 1000):
    least = grid.least_multiplier(clients, count, count)
    for z, exact in (1.1 * least, True), (least / 4, False):
      points = made(1.0, z, clients, count, count)
      scale = points.step * count**0.5
      of_noise = float(np.sqrt(deviation(points) ** 2 - 9) * scale)
      assert of_noise >= z
      assert (of_noise <= z * (1 + 1e-5)) == exact


def test_no_noise_is_none_and_what_is_no_number_is_nan():
  """Catches noise of a grid where none was asked for."""
  like = jnp.zeros(4, jnp.uint32)
  quiet = made(1.0, 0.0, 6)
  assert not grid.noise(cases.KEY, like, quiet).any()
  broken = made(1.0, jnp.nan, 6)
  assert np.isnan(grid.decode(like, broken)).all()


def test_numbers_are_rounded_towards_zero_and_never_wrapped():
  """Catches a cast that wraps, and parts of complex numbers mixed up."""
  points = grid.Grid(jnp.float32(0.5), jnp.array(True), jnp.int32(1), 16)
  x = {
    'real': jnp.array([0.49, -0.99, 1e30, -jnp.inf, jnp.nan]),
    'complex': jnp.array([1.7 - 2.2j]),
    'half': jnp.array([2.0], jnp.bfloat16),
  }
  back = grid.decode(grid.encode(x, points), points)
  large = 0.5 * 2.0**30
  np.testing.assert_array_equal(back['real'], [0, -0.5, large, -large, 0])
  np.testing.assert_array_equal(back['complex'], [1.5 - 2.0j])
  assert back['half'].dtype == jnp.float32


def law(stddev, center=0):
  """Points and log-probabilities of the discrete Gaussian about a center."""
  x = np.arange(-int(12 * stddev) - 12, int(12 * stddev) + 13)
  log = -((x - center) ** 2.0) / (2 * stddev**2)
  return x, log - np.log(np.exp(log).sum())


def brute_force_delta(stddev, shift, epsilon):
  """Delta of the discrete mechanism under an integer shift, by enumeration."""
  one = [law(stddev)[1] for _ in shift]
  other = [law(stddev, k)[1] for k in shift]
  total = lambda logs: sum(
    x.reshape([-1 if i == j else 1 for j in range(len(shift))])
    for i, x in enumerate(logs)
  )
  p, q = np.exp(total(one)), np.exp(total(other))
  return np.maximum(p - np.exp(epsilon) * q, 0).sum()


def test_the_discrete_mechanism_is_covered_by_the_continuous_one():
  """Catches an account of the same deviation, too low by rounding: 1 + 8e-9."""
  stddev, gaps = 2.0, []
  shifts = itertools.combinations_with_replacement(range(4), 3)
  for shift in shifts:
    length = float(np.linalg.norm(shift))
    if not 0 < length <= 4:
      continue
    z = (stddev**2 - 1) ** 0.5 / length
    for epsilon in 0.0, 0.3, 1.0, 2.5:
      found = brute_force_delta(stddev, shift, epsilon)
      stated = gaussian.delta_at(1 / z, epsilon)
      assert found <= stated * (1 + 1e-6) + 1e-12
      same = gaussian.delta_at(length / stddev, epsilon)
      gaps.append(found / same - 1)
  assert max(gaps) > 1e-3  # so that a bound without the lemma would fail


def test_one_number_may_hold_the_whole_bound():
  """Catches a grid finer than what a contribution is cut off at."""
  points = made(0.5, 0.0, 1)
  whole = grid.decode(grid.encode(jnp.array([0.5, -0.5]), points), points)
  np.testing.assert_allclose(whole, [0.5, -0.5], rtol=1e-5)
