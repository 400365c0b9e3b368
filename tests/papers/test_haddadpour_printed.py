"""Where printed statements of Haddadpour et al. fail, and some that hold."""

import itertools
import math

from fl_sketch import models
import jax
import jax.numpy as jnp
import numpy as np
import optax
from papers.common import privacy_bounds
from papers.haddadpour.statements import compressors, lemmas, plans, rates
import pytest
from scipy import stats

D = 61_706
SPEC = {'clients': 25, 'smoothness': 1.0, 'variance': 1.0, 'accuracy': 1e-3}
each_table = pytest.mark.parametrize(('t', 'm'), [(20, 40), (50, 100)])


@each_table
@pytest.mark.filterwarnings('ignore:This is NOT differential')
def test_theorem_1_admits_no_table_of_the_paper(t, m):
  """The best alpha is 4: 1 / alpha (1/2 - 1/alpha) is at most 1 / 16."""
  most = {40: 0.46, 100: 0.19}[m]
  assert (2 * stats.norm.cdf(most) - 1) ** 60_000 < 1e-300
  size = {'rows': t, 'dimension': 60_000, 'stddev': 1.0}
  epsilon = privacy_bounds.count_sketch_heuristic_epsilon
  assert epsilon(cols=4, max_value=4.4, **size) > 0
  for cols, value in (m, most), (5, 4.4):
    with pytest.raises(ValueError, match='alpha'):
      epsilon(cols=cols, max_value=value, **size)


def test_gradients_of_lenet_are_not_normal():
  """Six standard errors of the kurtosis of so many normals are 0.12."""
  module = models.make('lenet5', 10)
  params = models.init_params(module, jax.random.key(0), (28, 28, 1))
  x, y = jax.random.uniform(jax.random.key(1), (32, 28, 28, 1)), jnp.arange(32)

  def loss(p):
    logits = module.apply({'params': p}, x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y % 10).sum()

  gradient = jax.tree.leaves(jax.grad(loss)(params))
  assert stats.kurtosis(np.concatenate([*map(np.ravel, gradient)])) > 30


def test_the_remark_on_assumption_3_is_reversed():
  """Of x^2 + 3 sin^2 x, which is PL and not convex."""
  x = np.linspace(-20, 20, 10**5)  # without 0
  slope = 2 * x + 3 * np.sin(2 * x)
  assert lemmas.pl_constant(x**2 + 3 * np.sin(x) ** 2, slope[:, None]) > 0.15
  assert (2 + 6 * np.cos(2 * x)).min() < -3.9


def test_fact_4_holds():
  """By enumeration; catches a row of another verdict."""
  x, q = np.array([[1.0, -2.0, 5.0], [0.2, 0.5, 0.3]])
  samples = np.array([*itertools.product(range(3), repeat=4)])
  mean = q[samples].prod(1) @ x[samples].sum(1)
  assert mean == pytest.approx(4 * q @ x)


@pytest.mark.parametrize('k', [1, 25])
def test_equation_25_breaks_equation_16(k):
  """Catches rounds that lack the factor 4, or b for k."""
  run = lemmas.Constants(40.0, k, 1.0, 1.0, 20, 1, 0.1, float(k))
  for form, most in (('printed', 10), ('corrected', 1)):
    rounds = rates.least_rounds(run, form=form)
    eta = math.sqrt(k / (rounds * 20 * 41)) / k
    value = rates.condition(run._replace(client_lr=eta))
    assert value > most if form == 'printed' else value == pytest.approx(most)


def test_corollary_5_and_theorem_7_have_other_numbers_of_local_steps():
  """A p^2-th of 1 / eps is enough; 1 / eps costs ten times the accuracy."""
  p, eps, omega = 5, 0.001, 8.0
  spec = {'clients': p, 'smoothness': 1.0, 'variance': 1.0, 'gap': 1.0}
  spec |= {'local_steps': round(1 / (p**2 * eps)), 'rounds': round(p / eps)}
  assert plans.linear_speedup(**spec) == pytest.approx(4 * eps)
  b = lemmas.spread(omega, p, 'independent')
  tau = math.ceil((omega + 1) ** 2 / (p * b**2 * 1e-4))
  assert rates.regularizer(p, tau) / 2 > 10 * 1e-4


@pytest.mark.parametrize('objective', plans.OBJECTIVES)
def test_theorem_8_is_short_of_steps_and_is_not_theorem_2(objective):
  """Catches steps of Theorem 2 in place of the printed ones."""
  mu = {'pl_constant': 0.1} if objective == 'pl' else {}
  spec = SPEC | mu | {'omega': 400.0, 'server_lr': 25.0}
  run = plans.fedcom(objective, **spec)
  printed = plans.fedcom(objective, form='printed', **spec)
  two = plans.fedsketch(objective, form='printed', **spec)
  assert printed.rounds == two.rounds
  short = (401 / 17) ** (2 if objective == 'convex' else 1)
  steps = two.local_steps / printed.local_steps
  assert steps == pytest.approx(short, rel=0.05)
  legal = [rates.condition(some) <= 1 for some in (run, printed)]
  assert legal == [True, objective != 'nonconvex']
  assert printed.client_lr > 5 * run.client_lr  # of which the floor is


@pytest.mark.parametrize('eps', [0.5, 0.1, 1e-6])
def test_the_regimes_of_section_6_4_hold(eps):
  """By rounds as printed, for window lengths and kappa where they begin."""
  log = math.log(1 / eps)
  for m, times in itertools.product((10, 40, 1000), (10, 1000)):
    d = m * times
    omega = compressors.privix_variance(d, m, form='printed')
    ours = (omega + 1) / eps
    assert ours < max(1 / eps**2, (d**2 - m * d) / (m**2 * eps))
    assert ours < max(d * eps**2, 1) / eps**3
    kappa = d**2 / (omega * eps**2 * log)
    assert kappa * omega * log == pytest.approx(d**2 / eps**2)


@pytest.mark.parametrize(('sent', 'ahead'), [(800, True), (5000, False)])
def test_remark_5_holds_of_the_small_table_alone(sent, ahead):
  """Floats both ways on |x|^2 / 2, exact gradients, the best step of each."""
  omega, total = compressors.privix_variance(D + 1, sent), {}
  # Shared tables, and FedCOM's random coordinates, which are independent.
  for hashes, floats in (('shared', 2 * sent), ('independent', sent + D)):
    b = lemmas.spread(omega, 25, hashes)
    steps = np.linspace(0, 2 / b, 10_001)
    left = 1 - 2 * steps + steps**2 * b  # E|x - step C(x)|^2 / |x|^2
    rounds = 1 / -np.log(left.min())
    total[hashes] = rounds * floats
  assert (total['shared'] < total['independent']) == ahead
