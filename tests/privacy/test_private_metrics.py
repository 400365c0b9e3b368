"""Private statistics: what a client moves, noise, price; alarms below 1e-6."""

import functools

import cases
from fl_sketch import algorithms, rounds
from fl_sketch.privacy.mechanisms import private_metrics
from fl_sketch.rounds import mesh as mesh_lib
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import private_cases as private
from private_cases import HP, LANES, SECRET, C, R, Z, has_stddev, uncorrelated
import pytest

BOUND, SHARE = 3.0, 0.2
BUDGET = private_metrics.Budget(R, LANES, SHARE, BOUND)
# The hyperparameter is the multiplier on updates: `runs.hyper_of`.
WITH = HP._replace(noise_multiplier=jnp.float32(BUDGET.of_updates(Z)))
QUIET = HP._replace(noise_multiplier=jnp.float32(0))
SEND = lambda hp: lambda params, batches, key, correction: (
  batches['update'], {'train_loss': batches['loss']},
)  # fmt: skip
LOSSES = [0.0, 1.5, BOUND, 99.0, -4.0, 3e38, np.inf, -np.inf, np.nan, 0.7]


@functools.cache
def program(shards=1):
  """(hp, state, cohort, key, noise_key) -> broadcast, metrics."""
  make = algorithms.make('dp_fedavg', local=SEND, privacy=private.RELEASE)
  step = rounds.cohort_step(make, mesh_lib.cohort_mesh(shards), summary=BUDGET)

  def one(hp, state, sent, key, noise_key):
    message, _, metrics = step(hp, state, sent, key, None, noise_key)
    return message, metrics

  init = lambda hp: rounds.init(make(hp), cases.PARAMS, LANES)
  return cases.jit(one), cases.jit(jax.vmap(one, (None,) * 4 + (0,))), init


def sent(losses, present=None, scale=1.0):
  weight = np.ones(LANES) if present is None else np.float32(present)
  one = private.cohort(weight, scale)
  padded = np.resize(np.float32(losses), LANES)
  return one._replace(batches={'update': one.batches, 'loss': padded})


def play(what, shards=1):
  run, _, init = program(shards)
  return run(QUIET, init(QUIET), what, cases.KEY, SECRET)[1]


def sums(what, shards=1):
  """(sum of centred losses in units of L / 2, number of participants)."""
  metrics = play(what, shards=shards)
  loss = (np.float64(metrics['train_loss']) / (BOUND / 2) - 1) * R
  return loss, float(metrics['participants'])


def test_without_noise_they_are_a_mean_and_a_count():
  """Catches a loss that is not centred back, or another denominator."""
  present = [1, 0, 1, 1, 0, 1]
  losses = np.array([0.1, 9.0, 2.0, 0.5, 9.0, 1.0])
  metrics = play(sent(losses, present))
  own = {'train_loss', 'participants'}
  assert {*metrics} == own | {'uplink_bytes', 'downlink_bytes'}
  np.testing.assert_allclose(metrics['participants'], 4, rtol=1e-5)
  # Four took part, as many as expected.
  want = losses[np.array(present) > 0].mean()
  np.testing.assert_allclose(metrics['train_loss'], want, atol=1e-6 * BOUND)


def test_one_client_moves_each_sum_by_at_most_its_bound():
  """Catches losses beyond the bound, NaN, and sums that round."""
  base = [2.9, 0.0, 1.5, 0.0, 3.0, 0.2]
  without = sums(sent(base, [1, 1, 1, 0, 1, 1]))
  moved = []
  for loss in LOSSES:
    losses = [*base[:3], loss, *base[4:]]
    now = sums(sent(losses))
    assert now == sums(sent(losses), shards=2)
    moved.append(abs(now[0] - without[0]))
    assert now[1] - without[1] == pytest.approx(1, abs=1e-5)
  assert max(moved) <= 1 + 1e-6  # of float32, in which the mean is returned
  assert max(moved) > 1 - 1e-5


def test_noise_has_the_size_of_the_budget():
  """Catches statistics that take more of the guarantee than is said."""
  secrets = jax.random.split(SECRET, 3000)
  _, run, init = program()
  what = sent(np.full(LANES, BOUND / 2), np.zeros(LANES))
  message, metrics = run(WITH, init(WITH), what, cases.KEY, secrets)
  z = BUDGET.of_statistics(Z, 1)
  count = np.asarray(metrics['participants'])
  loss = (np.asarray(metrics['train_loss']) / (BOUND / 2) - 1) * R
  update = np.asarray(message['b'])[:, 0] * R / C
  for x, stddev in ((count, z), (loss, z), (update, BUDGET.of_updates(Z))):
    assert has_stddev(x, stddev)
    assert not has_stddev(x, stddev * 1.1)
  assert uncorrelated(count, loss)
  assert uncorrelated(count, update)
  assert uncorrelated(loss, update)


positive = st.floats(0.01, 100)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(positive, st.floats(1e-3, 0.999), st.integers(1, 5))
def test_the_parts_are_one_mechanism_of_the_accounted_multiplier(z, share, k):
  """Catches a price that is not paid: 1 / z^2 of a round must add up."""
  budget = private_metrics.Budget(R, LANES, share, BOUND)
  updates, statistic = budget.of_updates(z), budget.of_statistics(z, k)
  spent = k / updates**2 + 2 / statistic**2
  assert spent == pytest.approx(k / z**2, rel=1e-12)
  assert 2 / statistic**2 == pytest.approx(share * k / z**2, rel=1e-12)
