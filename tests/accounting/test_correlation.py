"""Correlated noise without rounds: weights, sensitivity, account and error."""

import itertools

from fl_sketch.accounting import correlation
from fl_sketch.accounting.correlation import ONE, Correlation
from fl_sketch.privacy.mechanisms import grid
import numpy as np
import pytest

WEIGHTS = {
  'one': (ONE,),
  'square_root_2': correlation.square_root(2),
  'square_root_4': correlation.square_root(4),
  'two_draws': (ONE, -29_491),
  'sums_to_0': (ONE, -ONE // 2, -ONE // 2),  # the column of C: 1, 0.5, 0.75
  'grows': (ONE, 0, 0, -ONE // 2),  # 1, 0, 0, 0.5
}
GROWS = 'sums_to_0', 'grows'
each_weights = pytest.mark.parametrize('name', WEIGHTS)


def matrix(noise):
  """A, from its definition: f64[rounds, rounds]."""
  n = noise.rounds
  bands = (np.eye(n, k=-j) * q / ONE for j, q in enumerate(noise.weights))
  return sum(bands)


def patterns(rounds, apart):
  """All sets of rounds that are at least `apart` from one another."""
  for chosen in itertools.product([0, 1], repeat=rounds):
    places = np.flatnonzero(chosen)
    if len(places) and (np.diff(places) >= apart).all():
      yield places


@each_weights
@pytest.mark.parametrize('apart', [1, 2, 6])
def test_no_pattern_of_participation_moves_more_than_the_sensitivity(
  name, apart
):
  """Catches a norm of other columns than those in which a client takes part."""
  noise = Correlation(WEIGHTS[name], 6, apart)
  c = np.linalg.inv(matrix(noise))
  for last in range(len(noise.weights), 7):
    largest = 0
    for places in patterns(last, apart):
      for signs in itertools.product([-1, 1], repeat=len(places) - 1):
        moved = c[:last, places] @ np.array([1, *signs])
        largest = max(largest, np.linalg.norm(moved))
    assert largest <= noise.sensitivity(last)
    if name not in GROWS:
      assert noise.sensitivity(last) <= largest * (1 + 1e-8)


@pytest.mark.parametrize('epoch', [1, 5, 12])
@pytest.mark.parametrize('apart', [1, 4, 30])
def test_epochs_in_a_fixed_order_cost_no_more_than_is_stated(epoch, apart):
  """Catches too few releases, or an epoch that is cheaper than it can be."""
  noise = Correlation(WEIGHTS['square_root_2'][:epoch], epoch, apart)
  c = np.linalg.inv(matrix(noise))
  for rounds in range(1, 13):
    worst = 0
    for first in range(min(apart, rounds)):
      chosen = np.zeros(-(-rounds // epoch) * epoch)
      chosen[first:rounds:apart] = 1
      moved = c @ chosen.reshape(-1, epoch).T
      worst = max(worst, (moved.T.ravel()[:rounds] ** 2).sum())
    stated = noise.mechanism(3.0, rounds)
    assert worst <= stated.steps * (3.0 / stated.noise_multiplier) ** 2
    if rounds % epoch == 0 and (apart == 1 or apart >= rounds):
      assert worst == pytest.approx(
        stated.steps * (3.0 / stated.noise_multiplier) ** 2
      )


def draws_of(y, x, weights):
  """The draws z, i64[..., rounds], with which inputs x are released as y."""
  z = np.zeros_like(y)
  for t in range(y.shape[-1]):
    lags = range(1, min(t + 1, len(weights)))
    earlier = sum((weights[j] * z[..., t - j] for j in lags), np.int64(0))
    z[..., t] = y[..., t] - x[..., t] - (earlier + ONE // 2) // ONE
  return z


@each_weights
@pytest.mark.parametrize('apart', [1, 3])
def test_rounding_moves_no_history_by_more_than_is_stated(name, apart):
  """Catches a bound of rounding that depends on the other numbers' draws."""
  noise, rng = Correlation(WEIGHTS[name], 8, apart), np.random.default_rng(0)
  numbers, length, longest = 50, 200.0, 0
  for _ in range(40):
    y = rng.integers(-5000, 5000, (numbers, 8))
    u = rng.normal(size=numbers)
    u = np.trunc(u / np.linalg.norm(u) * length)
    x = np.zeros((numbers, 8), np.int64)
    x[:, rng.integers(apart) :: apart] = u[:, None]
    there, here = (draws_of(y, inputs, noise.weights) for inputs in (x, 0 * x))
    for m in range(noise.bands, 9):
      moved = np.linalg.norm((there - here)[:, :m])
      bound = noise.sensitivity(m) * (length + noise.rounding(numbers))
      assert moved <= bound
      longest = max(longest, moved / (noise.sensitivity(m) * length))
  if name not in GROWS:
    assert longest > 0.9


# (clip norm, multiplier, clients, numbers, correlation)
GRIDS = [
  (0.3, 40.0, 50, 10**6, Correlation(correlation.square_root(16), 500, 1)),
  (1e20, 2.0, 2048, 10**6, Correlation(correlation.square_root(64), 500, 500)),
  (1e-3, 3.0, 65_537, 100, Correlation(WEIGHTS['two_draws'], 100, 10)),
]


@pytest.mark.parametrize('case', GRIDS)
def test_the_noise_is_louder_by_its_rounding_and_stays_on_the_grid(case):
  """Catches a grid for noise of contributions alone, or one that wraps."""
  bound, z, clients, numbers, noise = case
  steps = noise.rounding(numbers)
  points = grid.make(
    clip_norm=bound, noise_multiplier=z, clients=clients, rounding=steps,
    gain=noise.gain,
  )  # fmt: skip
  step = np.float64(points.step)
  square = np.float64(int(points.multiple)) ** 2
  stddev = points.base * (1 + square + square**2) ** 0.5
  effective = np.sqrt(stddev**2 - 9) * step
  wanted = z * (bound + steps * step)
  assert wanted * (1 + 1e-6) <= effective <= wanted * (1 + 2e-5)
  assert clients * bound / step + 13.3 * noise.gain * stddev < 2**31
  # Where no noise of a grid is loud enough there is none.
  quiet = {'clip_norm': 1.0, 'noise_multiplier': 200.0, 'clients': 50}
  assert np.isnan(grid.make(**quiet, rounding=1e6).step)
