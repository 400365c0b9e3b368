"""Coins of units, and clipped sums over samples; false alarms below 1e-6."""

import functools

import cases
from fl_sketch.privacy.auditing.canaries import (
  fixed_size_sample,
  poisson_sample,
)
from fl_sketch.privacy.mechanisms import sums as m
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.privacy.test_mechanisms import KEY, C, distance, flat

N, DRAWS = 8, 20_000
BINOMIAL = {q: stats.binom(N, q) for q in (0.3, 0.6)}
SIZES = np.arange(N + 1)
# A sampler, and the law of the size of its cohorts.
SAMPLERS = {
  'poisson': (lambda key: poisson_sample(key, N, 0.3, N),
              BINOMIAL[0.3].pmf(SIZES)),
  'cut to three': (lambda key: poisson_sample(key, N, 0.6, 3),
                   np.append(BINOMIAL[0.6].pmf(SIZES[:3]),
                             [BINOMIAL[0.6].sf(2), *[0.0] * 5])),
  'fixed size': (lambda key: fixed_size_sample(key, N, 3), 1.0 * (SIZES == 3)),
}  # fmt: skip


@pytest.mark.parametrize('name', SAMPLERS)
def test_every_client_and_pair_is_taken_as_often(name):
  """Catches coins that are unfair or depend on each other, and biased cuts."""
  sample, law = SAMPLERS[name]
  draw = cases.jit(jax.vmap(sample))
  ids, mask = jax.device_get(draw(jax.random.split(KEY, DRAWS)))
  assert ids.dtype == np.int32
  assert set(np.unique(mask)) <= {0.0, 1.0}
  assert ((ids < N) == (mask > 0)).all()  # the id of an empty slot is N
  taken = np.zeros((DRAWS, N + 1), int)
  np.add.at(taken, (np.arange(DRAWS)[:, None], ids), 1)
  taken = taken[:, :N]
  assert taken.max() == 1  # nobody twice
  single, both = law @ SIZES / N, law @ (SIZES * (SIZES - 1)) / N / (N - 1)
  pairs = taken.T @ taken
  counts = (np.diag(pairs), single), (pairs[np.triu_indices(N, 1)], both)
  for count, chance in counts:
    spread = (DRAWS * chance * (1 - chance)) ** 0.5
    assert np.abs(count - DRAWS * chance).max() < 6 * spread  # 2e-9 each
  sizes = np.bincount(taken.sum(1), minlength=N + 1)
  often = DRAWS * law > 5
  assert not sizes[law == 0].any()
  if often.sum() > 1:
    got, want = sizes[often], law[often] / law[often].sum()
    assert stats.chisquare(got, want * got.sum()).pvalue > 1e-7


PARAMS = {'w': jnp.linspace(-1, 1, 4), 'b': jnp.float32(0.3)}


def loss_fn(params, batch):
  x, y = batch
  return jnp.mean((x @ params['w'] + params['b'] - y) ** 2)


def batch_of(n=7):
  rng = np.random.default_rng(1)
  x = 10.0 ** rng.uniform(-2, 2, (n, 1)) * rng.normal(size=(n, 4))
  return x.astype('f4'), rng.normal(size=n).astype('f4')


def looped(params, batch, mask):
  """The definition: one sample after another, in float64."""
  total, of_one = 0, jax.jit(jax.grad(loss_fn))
  for x, y, taken in zip(*batch, mask, strict=True):
    grad = flat(of_one(params, (x[None], y[None]))).astype('f8')
    total = total + (taken > 0) * grad * min(1, C / np.linalg.norm(grad))
  return total


OFF = {'max_norm': C, 'noise_multiplier': 0.0}


@functools.cache
def clipped_sum(size):
  """(params, batch, mask) -> (the sum without noise, losses)."""
  fn = m.noisy_gradient_sum(loss_fn, **OFF, microbatch_size=size)
  return cases.jit(functools.partial(fn, jax.random.key(0)))


@pytest.mark.covers('S0-H8')
def test_clipped_sums_equal_a_loop_whatever_the_microbatch():
  batch, mask = batch_of(), np.float32([1, 1, 0, 1, 1, 0, 1])
  want = looped(PARAMS, batch, mask)
  loss_of = lambda x, y: loss_fn(PARAMS, (x[None], y[None]))
  losses = [loss_of(x, y) for x, y in zip(*batch, strict=True)]
  for size in 3, 50:
    total, reported = clipped_sum(size)(PARAMS, batch, mask)
    np.testing.assert_allclose(flat(total), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(reported, np.array(losses), rtol=1e-5)


@pytest.mark.covers('S0-H8')
def test_one_sample_moves_a_clipped_sum_by_at_most_c():
  fn = clipped_sum(3)
  x, y = batch_of()
  everyone, without = np.ones(7, 'f4'), np.float32(np.arange(7) != 4)
  base, _ = fn(PARAMS, (x, y), without)
  for value in 0.0, 1e-30, 1.0, 1e18, 3e38, np.inf, np.nan:
    for label in 0.0, -1e19, np.nan:
      x[4], y[4] = value, label
      total, _ = fn(PARAMS, (x, y), everyone)
      assert distance(total, base) <= C * (1 + 1e-5)
      if np.isnan(label) or np.isnan(value):
        assert distance(total, base) == 0  # NaN counts nothing
      total, _ = fn(PARAMS, (x, y), without)
      assert distance(total, base) == 0
