"""Constants of PRIVIX and HEAPRIX by 3000 sketches; 1e-9 to pass by chance."""

import math

import fedsketch_rounds
from fl_sketch import sketches
from fl_sketch.sketches import estimators
import jax
import jax.numpy as jnp
import numpy as np
from papers.haddadpour.statements import compressors
import pytest

D = 32


def test_remark_2_wants_one_over_mu_squared():
  """With e, as of Property 1, Delta is 1 + e at cols = d."""
  printed = compressors.privix_variance(1000, 1000, form='printed')
  assert printed == pytest.approx(math.e)
  assert compressors.privix_variance(1000, 1000) == pytest.approx(1, rel=0.01)


def sketched(rows, cols):
  """A vector of norm 1, not flat, and what 3000 sketches of it are read as."""
  x = np.arange(1.0, D + 1) ** -0.5
  x /= np.linalg.norm(x)
  rng = np.random.default_rng(0)
  many = np.repeat(x[None], 3000, axis=0)
  return x, fedsketch_rounds.decode(rng, many, rows, cols)


def between(estimate, low, high):
  mean, error = estimate
  return low < mean - 6 * error and mean + 6 * error < high


@pytest.mark.parametrize('rows', [1, 3, 4, 20])
def test_property_1_is_loose_and_what_corrects_it_exact_for_one_row(rows):
  x, draws = sketched(rows, 8)
  delta = compressors.unbiased_constant(x, draws)
  exact = 1 + compressors.privix_variance(D, 8)
  one = rows == 1
  assert between(delta, 0.9 * exact if one else 1, (1 + 0.1 * one) * exact)
  printed = 1 + compressors.privix_variance(D, 8, form='printed')
  assert between(delta, 0, printed / 2)


def test_lemma_1_wants_its_scale():
  x, draws = sketched(1, 8)
  delta = 1 + compressors.privix_variance(D, 8)
  scale, error, _ = compressors.scaled(delta)
  left = compressors.contraction_error(x, scale * draws)
  assert between(left, 0.9 * error, 1.1 * error)
  scale, error, _ = compressors.scaled(delta, form='printed')
  left = compressors.contraction_error(x, scale * draws)
  assert 4 * error < 0.9 * (delta - 1)
  assert between(left, 0.9 * (delta - 1), 1.1 * (delta - 1))
  # Nor does an alpha other than 1 in Definition 3 help.
  away = lambda alpha: np.square(alpha * x - draws).sum(1).mean()
  assert away(1.0) < min(away(0.5), away(2.0))


@pytest.mark.parametrize('combine', ['mean', 'median'])
def test_assumption_7_is_of_a_linear_decoder(combine):
  """Catches a median that is taken for linear, on updates with a small mean."""
  far, mean = np.random.default_rng(0).standard_normal((2, D))
  x = jnp.float32([mean + 9 * far, mean - 9 * far])  # of two clients
  op = sketches.count_sketch(3, 8, combine=combine)

  def one(key):
    tables = jax.vmap(lambda row: op.sketch(key, row))(x)
    read = lambda table: op.desketch(key, table, x[0])
    return read(tables.mean(0)), jax.vmap(read)(tables)

  draws = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 200))
  together, apart = map(np.asarray, draws)
  gaps = [*map(compressors.decoding_gap, together, apart)]
  more = (np.mean(apart, 1) ** 2 - together**2).sum(1)
  if combine == 'mean':
    assert max(gaps) < 1e-9 * mean @ mean
  else:
    assert fedsketch_rounds.ends(gaps, -1) > mean @ mean / 10
    assert fedsketch_rounds.ends(more, -1) > mean @ mean / 5
  assert compressors.decoding_gap(x[0], x, form='printed') == 0


@pytest.mark.parametrize('k', [1, 8, 31])
def test_lemma_3_and_corollary_1_hold(k):
  """The induced compressor of the k largest values and a count sketch."""
  x, _ = sketched(1, 8)
  top = np.where(np.arange(D) < k, x, 0)
  rng = np.random.default_rng(0)
  rest = np.repeat((x - top)[None], 3000, axis=0)
  draws = top + fedsketch_rounds.decode(rng, rest, 1, 8)
  measured = compressors.unbiased_constant(x, draws)
  error, _ = compressors.contraction_error(x, top[None])
  delta_2 = 1 + compressors.privix_variance(D, 8)
  met = compressors.induced(1 / (1 - error), delta_2)
  assert between(measured, 0.9 * met, 1.1 * met)
  bound = compressors.induced(D / k, delta_2)
  assert between(measured, 1 - 1e-9, bound)
  omega = compressors.heaprix_variance(D, 8, error=1 - k / D)
  assert bound == pytest.approx(1 + omega)
  if k == 8:
    printed = 1 + compressors.heaprix_variance(D, 8, form='printed')
    assert between(measured, 1, printed)
  # Remark 3's Delta_1 <= 1 would have less than a second moment of 1.
  assert between(
    measured, compressors.induced(0.9, 99.0, form='printed'), np.inf
  )


def library(rows, cols, d, k, power, draws):
  """The library's HEAVYMIX and HEAPRIX of x_i of that power of i: exact."""
  x = np.arange(1.0, d + 1) ** power
  x = jnp.asarray(x / np.linalg.norm(x), jnp.float32)
  op = sketches.count_sketch(rows, cols)

  def one(key):
    table = op.sketch(key, x)
    exact = x[estimators.heavy_support(op, key, table, x, k)]
    mix = estimators.heavymix(op, key, table, x, k, exact)
    return mix, estimators.heaprix(op, key, x, k)

  keys = jax.random.split(jax.random.key(0), draws)
  options = {'xla_backend_optimization_level': 0}
  measured = jax.jit(jax.vmap(one), compiler_options=options)(keys)
  return np.asarray(x, float), *(np.asarray(y, float) for y in measured)


@pytest.mark.long
def test_lemma_2_and_corollary_1_fail_of_a_row_that_finds_nothing():
  rows, cols, d = 1, 2, 16
  x, mix, heap = library(rows, cols, d, cols, 2.0, 16000)
  left = compressors.contraction_error(x, mix)
  printed = compressors.heavymix(d, cols, rows=rows, cols=cols, form='printed')
  assert between(left, 1.1 * printed.error, 1)
  omega = compressors.contraction_error(x, heap)
  met = compressors.heaprix_variance(d, cols, error=left[0])
  assert between(omega, 0.9 * met, 1.1 * met)
  wrong = compressors.heaprix_variance(d, cols, form='printed')
  assert between(omega, wrong, np.inf)


@pytest.mark.long
def test_lemma_2_and_corollary_1_hold_of_a_table_that_is_large():
  rows, cols, d, k = 15, 256, 4096, 8
  x, mix, heap = library(rows, cols, d, k, -0.6, 300)
  left = compressors.contraction_error(x, mix)
  bound = compressors.heavymix(d, k, rows=rows, cols=cols).error
  assert bound < 1
  assert between(left, 0, bound)
  omega = compressors.contraction_error(x, heap)
  assert between(omega, 0, compressors.heaprix_variance(d, cols, error=left[0]))
