"""The calculators of Chen et al.: their numbers, limits and conditions."""

import functools
import math

from fl_sketch import sketches
from fl_sketch.utils import markdown
import jax
import jax.numpy as jnp
import numpy as np
from papers.chen.statements import constants, corollaries, gradients, rates
from papers.chen.statements.constants import Constants
from papers.common import statements as catalog
import pytest

RUN = Constants(2**12, 2**8, 10**4, 0.01, 0.1, 1.0, 1.0, 2.0, clients=5)
NUMBER = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.01}


@pytest.mark.parametrize('b1', [0.0, 0.1, 0.5, 0.9, 0.99])
def test_the_momentum_of_a_decaying_rate(b1):
  """J is enough, and what the induction asks for from t = 0 to t = 1 on."""
  rate = constants.client_schedule(3, b1)
  first = constants.first_round(b1)
  assert rate(-1) == pytest.approx(1 / (3 * math.sqrt(first)))
  jitted = jax.jit(rate)(jnp.arange(3))  # as a round calls it
  np.testing.assert_allclose(jitted, rate(np.arange(3)), rtol=1e-6)
  least = lambda r: (1 - b1) / (1 - b1 * rate(r - 1) / rate(r))
  factor, m = constants.momentum_factor(b1), 0.0
  assert least(0) == pytest.approx(factor)
  for r in range(2000):
    m = b1 * m + (1 - b1) * rate(r)
    assert m <= factor * rate(r)
    assert least(r) <= factor * (1 + 1e-12)


@pytest.mark.parametrize('form', catalog.FORMS)
def test_remark_3_3(form):
  """At eta = 1 / (K sqrt(T)) local steps enter by a logarithm, if at all."""
  number = NUMBER | {'gradient_l1': 2.0, 'form': form}
  bound = lambda steps, lr: rates.constant_rate(
    RUN._replace(local_steps=steps, client_lr=lr), **number
  )
  assert bound(1000, 1e-5) == pytest.approx(bound(10, 1e-3), rel=0.5)
  assert bound(1000, 1e-3) > 20 * bound(10, 1e-3)


@pytest.mark.parametrize('form', catalog.FORMS)
def test_rates(form):
  """1 / sqrt(T) of Corollary 1 and 1 / T of Corollary 2, up to logarithms."""
  number = NUMBER | {'gradient_l1': 0.01, 'form': form}
  run = Constants(10**6, 10**6, 1, 1.0, 0.1, 1.0, 1.0, 2.0)
  paced = lambda t: run._replace(rounds=t, client_lr=t**-0.5)
  long = [corollaries.asymptotic(paced(t), **number) for t in (10**6, 10**8)]
  assert long[0] / long[1] == pytest.approx(10, rel=0.2)
  number['j3'] = 2000.0
  short = [corollaries.near_start(paced(t), **number) for t in (100, 1000)]
  assert short[0] / short[1] == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize('l1', [None, 3.0])
@pytest.mark.parametrize('decaying', [False, True])
def test_every_term_of_theorems_3_2_and_b_3(l1, decaying):
  """By hand, with K = 3, noise, and delta in quarters."""
  d, b, t, c, k, kappa, eps, smooth = 64, 16, 100, 5, 3, 0.2, 0.5, 2.0
  trace, b1, sigma, g, gap = 4.0, 0.9, 0.3, 1.5, 7.0
  etas, past, bound = np.full(t, 0.1), 9.0, rates.constant_rate
  if decaying:
    etas, bound = 1 / (k * np.sqrt(np.arange(7, 7 + t))), rates.decaying_rate
    past = (constants.momentum_factor(b1) - 0.1) / 0.1
  run = Constants(d, b, t, etas[0], kappa, eps, smooth, trace, c, k, b1, sigma)
  value = bound(run, gap=gap, gradient_bound=g, delta=0.04, gradient_l1=l1)
  u = math.log(2 / (0.01 / (d * t)))
  longest = g + sigma * math.sqrt(math.log(2 * c * k * t / 0.01))
  entry = (1 + 2 * math.sqrt(u / b) + 2 * u / b) * etas * k * longest
  mean = sigma**2 * (1 + math.log(2)) / (k * c)
  variance = (2 / b) * (g + math.sqrt(mean)) ** 2 + mean
  m = entry[0] + eps
  step = 1 + past * entry[0] / m
  terms = (
    smooth * (k * (k - 1) / 2) * kappa * g * longest / eps * (etas**2).sum(),
    kappa * k * g / eps * math.sqrt(variance * (etas**2).sum() / 0.02),
    (past * step + step**2 / 2) * trace * smooth * (kappa / eps) ** 2
    * (entry**2).sum(),
    kappa * (d * g if l1 is None else l1) * (1 + past)
    * entry[0] ** 2 / (eps * m),
  )  # fmt: skip
  total = gap + sum(terms)
  assert value == pytest.approx(m / (kappa * k * etas.sum()) * total)


def test_lemma_4_1():
  """An equality on parabolas; on others at 10^4 random points."""
  x = np.random.default_rng(0).standard_cauchy(10_000)
  for loss, slope, smoothness in (
    (np.log1p(x**2) / 2, x / (1 + x**2), 1.0),
    (1 - np.cos(x), np.sin(x), 1.0),
    (np.logaddexp(0, x), (1 + np.tanh(x / 2)) / 2, 0.25),
    (1.5 * x**2, 3 * x, 3.0),
  ):
    bound = gradients.squared_gradient(loss, smoothness=smoothness)
    assert np.all(slope**2 <= bound * (1 + 1e-9))
  np.testing.assert_allclose(bound, slope**2)


def test_lemma_4_2():
  """10^4 clients with noise of length 1: not one of K delta = 10^-7 fails."""
  rng, steps = np.random.default_rng(0), 10
  number = {'smoothness': 2.0, 'client_lr': 0.25 / steps**0.5}
  x = start = rng.standard_cauchy((10_000, 3))
  slope = lambda x: 2 * x / (1 + x**2)
  loss, norms = np.log1p(start**2).sum(1), []
  for _ in range(steps):
    noise = rng.standard_normal(x.shape)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    x = x - number['client_lr'] * (slope(x) + noise)
    norms.append(np.linalg.norm(slope(x), axis=1))
  number |= {'local_steps': steps, 'noise_bound': 1.0, 'delta': 1e-8}
  bound = functools.partial(gradients.local_gradient, **number)
  assert np.all(np.max(norms, 0) <= bound(loss))
  # A step that is the largest but for rounding will do.
  bound(1.0, smoothness=1.0, client_lr=0.25 * (1 + 1e-15), local_steps=4)


def test_gradients_are_bounded_by_no_less_than_the_loss_says():
  fast = Constants(2**20, 2**20, 10**4, 1e-5, 0.5, 1.0, 1.0, 2.0)
  number = {'gradient_squared': 4.0, 'm8': 1.0, 'form': 'printed'}
  printed = gradients.bounded_gradients(fast, delta=0.1, **number)
  assert printed.gradient_squared == 4
  slow = RUN._replace(client_lr=1e-4, server_lr=1e-3)
  number = {'delta': 0.1, 'start_loss': 1.0, 'root_trace': 4.0}
  bound = gradients.bounded_gradients(slow, **number)
  at_start = gradients.squared_gradient(1.0, smoothness=RUN.smoothness)
  assert at_start < bound.gradient_squared < 1.2 * at_start
  noisy = gradients.bounded_gradients(slow._replace(noise=1.0), **number)
  assert noisy.gradient_squared > bound.gradient_squared


def test_the_scale_of_noise():
  """The least that admits the samples: Gaussian noise has sqrt(2) at least."""
  norms = np.abs(np.random.default_rng(0).standard_normal(1000))
  sigma = constants.sub_gaussian_scale(norms)
  shares = np.mean(norms >= norms[:, None], 1)
  assert min(2 * np.exp(-((norms / sigma) ** 2)) / shares) == pytest.approx(1)
  assert 1.2 < sigma < 1.6
  # What the corrected bounds take its mean square for.
  assert np.mean(norms**2) < constants.SQUARE * sigma**2


def test_table_1():
  d, b, t, c = 10**6, 10**4, 400, 5
  table = corollaries.comparison(d, b, rounds=t, clients=c)
  number = lambda cell: float(cell.rpartition('=')[2])
  _, *lines = markdown.cells(table)
  rows = {name: [*map(number, cells)] for name, *cells in lines}
  assert rows['SAFL'] == rows['FetchSGD'] == [32e4, 0.05, 0.05]
  assert rows['CD-Adam'] == [32e4, 1e-3, 50.0]
  assert rows['1-bit Adam'][0] == d
  omega = sketches.uniform_sampling(b).properties.alpha(d)
  assert rows['MARINA'][2] == pytest.approx(omega / c**0.5 / t, rel=1e-2)
  assert rows['MARINA'][1] == pytest.approx(1 / (1 + omega / c**0.5), rel=1e-2)
  assert rows['CocktailSGD'][2] > 1e9
