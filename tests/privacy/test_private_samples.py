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


def counted(sample, n, draws=20000):
  """int[n, n], how often two were taken together; and the cohorts' sizes."""
  draw = cases.jit(jax.vmap(sample))
  ids, mask = jax.device_get(draw(jax.random.split(KEY, draws)))
  assert ids.dtype == np.int32
  assert set(np.unique(mask)) <= {0.0, 1.0}
  assert ((ids < n) == (mask > 0)).all()  # nobody is beyond all ids
  assert (ids[mask == 0] == n).all()
  taken = np.zeros((draws, n + 1), int)
  np.add.at(taken, (np.arange(draws)[:, None], ids), 1)
  taken = taken[:, :n]
  assert taken.max() == 1  # nobody twice
  return taken.T @ taken, taken.sum(1)


def fair(counts, probability, draws=20000):
  """Chi-square of counts of single events, each by itself."""
  spread = (draws * probability * (1 - probability)) ** 0.5
  deviates = (counts - draws * probability) / spread
  return np.abs(deviates).max() < 6  # 2e-9 each, of up to 100


def test_poisson_coins_are_independent_and_fair():
  n, q, draws = 8, 0.3, 20000
  pairs, sizes = counted(lambda key: poisson_sample(key, n, q, n), n)
  assert fair(np.diag(pairs), q)
  assert fair(pairs[np.triu_indices(n, 1)], q * q)
  want = draws * stats.binom.pmf(np.arange(n + 1), n, q)
  got = np.bincount(sizes, minlength=n + 1)
  keep = want > 5
  got = np.append(got[keep], got[~keep].sum())
  want = np.append(want[keep], want[~keep].sum())
  assert stats.chisquare(got, want).pvalue > 1e-7


def test_too_many_are_cut_to_a_uniform_subset():
  n, q, most, draws = 8, 0.6, 3, 20000
  pairs, sizes = counted(lambda key: poisson_sample(key, n, q, most), n)
  assert sizes.max() == most
  size = stats.binom(n, q)
  kept = size.expect(lambda k: np.minimum(k, most)) / n
  assert fair(np.diag(pairs), kept)
  both = size.expect(lambda k: np.minimum(k, most) * (np.minimum(k, most) - 1))
  assert fair(pairs[np.triu_indices(n, 1)], both / n / (n - 1))
  want = np.append(size.pmf(np.arange(most)), size.sf(most - 1)) * draws
  assert stats.chisquare(np.bincount(sizes), want).pvalue > 1e-7


def test_fixed_sizes_take_every_pair_as_often():
  n, size = 7, 3
  pairs, sizes = counted(lambda key: fixed_size_sample(key, n, size), n)
  assert (sizes == size).all()
  assert fair(np.diag(pairs), size / n)
  assert fair(pairs[np.triu_indices(n, 1)], size * (size - 1) / n / (n - 1))


@pytest.mark.long
def test_a_small_probability_is_not_rounded_up():
  """In 23 bits a hundredth of a step would be a whole one."""
  q, n, draws = 0.01 * 2.0**-23, 2**22, 16
  count = lambda key: poisson_sample(key, n, q, 50)[1].sum()
  run = jax.jit(lambda keys: jax.lax.map(count, keys).sum())
  # 0.08 in the mean: more than 4 have probability 3e-8, and 0.9 where it is 8.
  assert run(jax.random.split(KEY, draws)) <= 4


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
