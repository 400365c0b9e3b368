"""The papers' formulas: their values, their ranges, where they are wrong."""

import functools
import math

from accounting_reference import epsilon, poisson
from fl_sketch import accounting, runs, sketches
from fl_sketch.accounting import gaussian
import jax
import numpy as np
from papers.common import privacy_bounds as bounds
import pytest

from tests.runs.test_account import quadratics as quadratics_config


def gaussian_sigma(eps, sensitivity=1.0):
  return bounds.gaussian_mechanism_sigma(
    eps, 1e-5, sensitivity, allow_unproven=True
  )


@pytest.mark.parametrize(
  ('eps', 'ratio'), [(0.1, 1.58), (1, 1.30), (5, 1.09), (8, 1.009)]
)
def test_the_gaussian_lemma_is_loose(eps, ratio):
  sigma = gaussian_sigma(eps)
  exact = accounting.gaussian_noise_multiplier(eps, 1e-5)
  assert sigma / exact == pytest.approx(ratio, abs=5e-3)
  assert gaussian_sigma(eps, sensitivity=3.0) == pytest.approx(3 * sigma)


def test_the_gaussian_lemma_fails_at_a_large_epsilon():
  true = lambda eps: gaussian.delta_at(1 / gaussian_sigma(eps), eps)
  assert true(8.41) < 1e-5 < true(8.43)
  assert [true(10), true(20)] == pytest.approx([2.3e-5, 1.5e-3], rel=0.03)


@pytest.mark.parametrize('eps', [0.01, 0.3, 1.0])
@pytest.mark.parametrize('k', [1, 100, 5000])
def test_composition_bounds_hold_and_are_ordered(eps, k):
  """Above the closed form of Gaussian steps; and drv10 is the smaller one."""
  z = accounting.gaussian_noise_multiplier(eps, 1e-9)
  spec = {'delta_slack': 1e-6}
  loose, delta = bounds.advanced_composition(eps, 1e-9, k, **spec)
  tight, _ = bounds.advanced_composition(eps, 1e-9, k, form='drv10', **spec)
  assert accounting.gaussian_epsilon(z, delta, k) < tight < loose


def test_amplification():
  of = functools.partial(bounds.subsample_amplification, 1.0, 1e-5)
  assert of(0.2) == pytest.approx((0.2953, 2e-6), rel=1e-3)
  assert of(0.2, form='h4') == pytest.approx((1.2, 0.8e-5 * math.exp(1.2)))
  assert of(1.0) == (1.0, 1e-5)


@pytest.mark.parametrize(
  ('setting', 'constant'),
  [((5.0, 1e-6, 1.0, 500), 1.738), ((5.0, 1e-5, 0.2, 100), 2.186)],
)
def test_das_constant_is_not_one_number(setting, constant):
  eps, delta, q, rounds = setting
  size = {'population': 50, 'cohort': q * 50, 'rounds': rounds}
  z = bounds.das_noise_multiplier(eps, delta, constant=constant, **size)
  assert epsilon(poisson(z, rounds, q), delta) == pytest.approx(eps, rel=1e-3)


heuristic = functools.partial(
  bounds.count_sketch_heuristic_epsilon, rows=3, cols=14, dimension=10**6,
  max_value=4.5, stddev=1.0,
)  # fmt: skip


@pytest.mark.parametrize(('dimension', 'most'), [(10**6, 14), (10**7, 42)])
def test_the_heuristic_of_count_sketch_covers_few_columns(dimension, most):
  with pytest.warns(UserWarning, match='NOT differential privacy'):
    eps = heuristic(dimension=dimension, cols=most)
  a = 4 * 4.5**2 * most * (most - 1) * (1 + math.log(dimension - most))
  assert eps == pytest.approx(3 * math.log1p(a / (dimension - 2)))
  with pytest.raises(ValueError, match='alpha'):
    heuristic(dimension=dimension, cols=most + 1)


@pytest.mark.filterwarnings('ignore:This is NOT differential')
def test_theorem_1_fails_of_two_given_inputs():
  """Catches an epsilon for a sketch: under every key it tells 0 from e_1."""
  op, keys = sketches.count_sketch(3, 14), jax.random.split(jax.random.key(0))
  spike = np.float32(np.arange(10**6) == 0)
  told = lambda x: np.mean([np.any(op.sketch(key, x) != 0) for key in keys])
  assert told(spike) == 1 > math.exp(heuristic()) * told(0 * spike)


@pytest.mark.parametrize('before_sketch', [False, True])
def test_a_sketch_changes_no_epsilon(before_sketch):
  """Post-processing, Song et al., Lemma H.5; the clients' noise is the same."""
  dense = runs.account(quadratics_config())
  fields = {'algorithm': 'iterative_sketching', 'before_sketch': before_sketch}
  fields['sketch'] = {'kind': 'block_cyclic', 'size': 20}
  sketched = runs.account(quadratics_config(**fields))
  assert sketched.mechanism == dense.mechanism
  assert sketched.statement.epsilon == dense.statement.epsilon
