"""Lemmas D.12 to D.28 of Song et al., Property 3 of Chen et al.; at ALARM."""

import functools
import itertools
import math

import exact_variances
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
from operators import both, mean_and_error
from papers.chen.statements import corollaries
from papers.common import tails
from papers.common.conditions import FORMS
from papers.song.statements import lemmas
import pytest
from scipy import stats

pytestmark = pytest.mark.xdist_group('embeddings')  # share draws
ALARM, KEY = 1e-8, jax.random.key(2)
D, SIZE, SPARSITY = 256, 64, 4


def made(size, sparsity):
  """An operator of every family."""
  return {
    'ams': sketches.ams(size),
    'count_sketch': sketches.count_sketch(1, size, combine='mean'),
    'gaussian': sketches.gaussian(size),
    'sparse_embedding': sketches.sparse_embedding(size, sparsity),
    'srht': sketches.srht(size),
    'uniform_sampling': sketches.uniform_sampling(size),
  }


OPERATORS = made(SIZE, SPARSITY)
SMALL = made(4, 2) | {'embedding_1': sketches.sparse_embedding(4, 2, kind='I')}
PAIR = np.random.default_rng(0).standard_normal((2, D))


def at_most(share, probability, draws):
  """Whether a count of draws may have a probability of at most that."""
  return stats.binom.sf(round(share * draws) - 1, draws, probability) > ALARM


def draw(measure, draws, at_a_time):
  """`measure` of fresh keys, f64[draws]."""
  run = lambda keys: jax.lax.map(measure, keys, batch_size=at_a_time)
  return np.float64(jax.jit(run)(jax.random.split(KEY, draws)))


def errors(op, g, h, draws):
  """<R^T R g, h> - <g, h> of unit vectors along f[d], f64[draws]."""
  g, h = (g / np.linalg.norm(g)).astype(np.float32), h / np.linalg.norm(h)
  project = lambda key: op.desketch(key, op.sketch(key, g), g) @ jnp.float32(h)
  return draw(project, draws, 256) - g @ h


@functools.cache
def coherences(op):
  """The largest |<R_i, R_j>| of two columns in each draw, if E R^T R = I."""

  def largest(key):
    columns = jax.vmap(op.sketch, (None, 0))(key, jnp.eye(D)).reshape(D, -1)
    gram = jnp.matmul(columns, columns.T, precision='highest')
    away = jnp.abs(gram - jnp.diag(jnp.diag(gram))).max()
    return away / op.properties.adjoint_scale

  return draw(largest, 1000, 1)


def beyond(op, delta):
  """The bounds on the coherence, and the shares of draws above them."""
  number = op.properties.name, D, SIZE, delta
  of = functools.partial(tails.coherence, *number, sparsity=SPARSITY)
  bounds = [of(form=form) for form in FORMS]
  return bounds, [float(np.mean(coherences(op) > bound)) for bound in bounds]


@pytest.mark.parametrize('name', ['ams', 'gaussian', 'srht'])
def test_printed_coherence_is_that_of_a_single_pair(name):
  """Of all pairs it is exceeded far more often than delta = 0.01 says."""
  (printed, corrected), shares = beyond(OPERATORS[name], 0.01)
  assert not at_most(shares[0], 0.01, 1000)
  assert at_most(shares[1], 0.01, 1000)
  median = np.median(coherences(OPERATORS[name]))
  assert corrected < 2 * median
  assert printed == pytest.approx((math.log(D / 0.01) / SIZE) ** 0.5)
  if name != 'srht':  # whose 255 products are far fewer
    assert median > printed


@pytest.mark.parametrize('name', ['count_sketch', 'sparse_embedding'])
def test_coherence_of_sparse_columns(name):
  """A multiple of 1 / s, at most 1, which the Count Sketch attains."""
  (_, corrected), shares = beyond(OPERATORS[name], 0.01)
  values = coherences(OPERATORS[name])
  steps = values * (SPARSITY if name == 'sparse_embedding' else 1)
  np.testing.assert_allclose(steps, np.round(steps), atol=1e-5)
  assert values.max() <= corrected <= 1
  if name == 'count_sketch':
    assert np.median(values) == corrected == 1
    assert shares[0] == 0
  wide = tails.coherence('sparse_embedding', D, D, 0.1, sparsity=D)
  assert wide < 0.6


@functools.cache
def sizes(name):
  """Of 2048 errors of an inner product."""
  return np.abs(errors(OPERATORS[name], *PAIR, 2048))


@pytest.mark.parametrize('name', OPERATORS)
def test_tails(name):
  """They hold, and the corrected one of a Gaussian within a factor of 3."""
  for delta in (0.1, 0.01):
    for form in FORMS:
      bound = tails.tail(name, D, SIZE, delta, sparsity=SPARSITY, form=form)
      assert at_most(float(np.mean(sizes(name) > bound)), delta, 2048)
      if (name, form) == ('gaussian', 'corrected'):
        assert bound < 3 * np.quantile(sizes(name), 1 - delta)


def test_the_tail_of_srht():
  """Where the printed bound is vacuous: no error exceeds n / b - 1 = 3."""
  printed, corrected = (
    tails.tail('srht', D, SIZE, 0.01, form=form) for form in FORMS
  )
  assert sizes('srht').max() < corrected < 3 < printed
  assert tails.tail('srht', D, SIZE, 1e-9) == 3
  # By its entries, where neither that nor Chebyshev's inequality is less.
  large = tails.tail('srht', 2**20, 2**10, 1e-9)
  assert 10 < large < tails.chebyshev(2**10, 1e-9) / 50


def test_what_uniform_sampling_may_do():
  """It attains the corrected bound where it keeps a spike."""
  spike = np.eye(1, D)[0]
  op = OPERATORS['uniform_sampling']
  measured = np.abs(errors(op, spike, spike, 256))
  bound = tails.tail('uniform_sampling', D, SIZE, 0.1)
  assert measured.max() == pytest.approx(bound) == D / SIZE - 1
  assert bound < tails.tail('uniform_sampling', D, SIZE, 0.1, form='printed')
  assert tails.tail('uniform_sampling', D, D - 1, 0.1) == 1
  assert tails.coordinate_wise('uniform_sampling', D, SIZE) == D - SIZE


def test_property_3_is_not_of_the_count_sketch():
  """Two coordinates collide with probability 1 / b, an error of 1."""
  for b, delta in ((2**14, 0.01 / 2**14), (2**17, 2.0**-34), (2**26, 2.0**-52)):
    number = 'count_sketch', b, b, delta
    printed = tails.bounded_products(*number, form='printed')
    assert printed < 1 < tails.bounded_products(*number)


def test_lemma_d_25_needs_two_buckets():
  """In one, equal coordinates have an error of (sum of n signs)^2 / n - 1."""
  n = 256

  def excess(delta):  # Pr / delta
    most = math.sqrt(n * (1 + math.log(1 / delta)))
    return 2 * stats.binom.sf((n + most) / 2, n, 0.5) / delta

  assert excess(1e-3) > 3
  assert excess(1e-8) > 10 * excess(1e-4) > 100
  assert tails.tail('count_sketch', n, 1, 0.125) == 4


def test_the_constant_of_lemma_d_26():
  """Of k equal coordinates: above delta, printed, and near 2 delta."""
  size, k, draws = 1024, 8, 20_480
  flat = np.eye(k, size).sum(0)
  op = sketches.count_sketch(1, size)
  measured = np.abs(errors(op, flat, flat, draws))
  delta = k**2 / (4 * size)
  printed = tails.chebyshev(size, delta, form='printed')
  share = float(np.mean(measured > printed - 1e-5))
  assert not at_most(share, delta, draws)
  assert tails.chebyshev(size, 2 * delta) == pytest.approx(printed)
  assert at_most(share, 2 * delta, draws)


def test_the_norms_of_gaussian_sketches_are_chi_squares():
  """By Laurent and Massart, and by the distribution itself."""
  spike, draws = np.eye(1, D)[0], 2048
  op = OPERATORS['gaussian']
  squares = SIZE * (errors(op, spike, spike, draws) + 1)
  for delta in (0.3, 0.01, 1e-6):
    low, high = tails.chi_square_interval(SIZE, delta)
    exact = stats.chi2.interval(1 - delta, SIZE)
    assert low < exact[0] < exact[1] < high < 1.3 * exact[1]
  assert stats.kstest(squares, stats.chi2(SIZE).cdf).pvalue > ALARM


@pytest.mark.parametrize('d', [D, 4 * D])
def test_remark_3_4(d):
  """E y'Ay of y = R'Rg grows with the intrinsic dimension, not with d."""
  op = OPERATORS['count_sketch']
  weights = np.arange(1.0, d + 1) ** -2
  g = np.eye(1, d, dtype=np.float32)[0]

  def squares(key):
    y = both(op, g)(key, g)
    return jnp.stack([(weights * y**2).sum(), (y**2).sum()])

  # To 6 standard errors: 2e-9 to miss one.
  mean, error = mean_and_error(draw(squares, 4000, 4000))
  bound = corollaries.curvature(
    smoothness=1.0, intrinsic_dimension=weights.sum(), size=SIZE
  )
  assert mean[0] - 6 * error[0] < bound < 1.1 * (mean[0] + 6 * error[0])
  alpha = op.properties.alpha(d)
  assert abs(mean[1] - 1 - alpha) < 6 * error[1]
  assert alpha == (d - 1) / SIZE


@pytest.mark.parametrize('d', [64, 100])
def test_alpha_is_that_of_the_operators(d):
  """Catches a constant of another operator, and a bound below the exact one."""
  operators = made(8, 4)
  for name in lemmas.OPERATORS:
    printed, exact = (lemmas.alpha(name, d, 8, form=form) for form in FORMS)
    assert exact == pytest.approx(operators[name].properties.alpha(d))
    of_table = 3 if name in ('gaussian', 'count_sketch') else 2
    assert printed == pytest.approx(of_table * d / 8)
    assert exact < printed < 4 * exact


@pytest.mark.parametrize('name', SMALL)
def test_exact_variances_and_projections(name):
  """Catches bounds, also those of Lemmas D.12 to D.16, below a variance."""
  d, b, rng = 16, 4, np.random.default_rng(0)
  g, h = rng.normal(size=(2, d))
  vectors = np.stack([g, g + h, np.eye(d)[3], np.arange(d) < 5])
  op = SMALL[name]
  variance = functools.partial(exact_variances.variance, op)
  most = functools.partial(tails.coordinate_wise, op.properties.name, d, b)
  constants = [most(form=form) for form in FORMS]
  for g, h, a in itertools.product(vectors, vectors, constants):
    assert variance(g, h) < a / b * (g @ g) * (h @ h) * (1 + 1e-12)
  # Remark D.10: a projection of rank 5 of an estimate of g + h.
  basis = np.linalg.qr(np.random.default_rng(1).normal(size=(d, 5)))[0]
  bound = op.properties.coordinate_wise(d) / b * np.square(vectors[1]).sum()
  for row in basis @ basis.T:
    assert variance(vectors[1], row) < bound * (row @ row)
  # The spike of Remark D.17: what is bounded for the others is d / b here.
  spike = variance(vectors[2], vectors[2])
  assert (1 + spike > 0.8 * d / b) == (name == 'uniform_sampling')
  if name in ('gaussian', 'uniform_sampling'):  # it meets the corrected one
    assert spike == pytest.approx(constants[1] / b)
