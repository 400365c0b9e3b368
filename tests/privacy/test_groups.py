"""Epsilon of several units of one person against closed forms, brute force."""

import math

from accounting_reference import (
  FIXED,
  INF,
  REPLACE,
  TRUNCATED,
  ZERO,
  epsilon,
  poisson,
)
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import Adjacency, GaussianMechanism
from fl_sketch.privacy.accounting.groups import group_epsilon
import numpy as np
import pytest
from refusals import refused_calls
from scipy import stats

CAPPED = GaussianMechanism(1.21, 100, TRUNCATED, 0.1, 100, 33)


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('k', [1, 2, 7])
def test_everybody_is_the_closed_form_of_k_times_the_sensitivity(adjacency, k):
  """Catches the k-fold bound, or C for 2C, where there is a closed form."""
  mechanism = GaussianMechanism(40.0, 100, adjacency=adjacency)
  moved = 2 if adjacency is REPLACE else 1
  closed = accounting.gaussian_epsilon(40.0 / (moved * k), 1e-6, 100)
  got = group_epsilon(mechanism, k, delta=1e-6)
  assert got == pytest.approx(closed, rel=1e-12)


def test_one_unit_is_no_group_and_more_cost_more():
  for mechanism in (poisson(8.0, 100, 0.2), poisson(20.0, 100, 1.0)):
    sizes = [group_epsilon(mechanism, k, delta=1e-5) for k in (1, 2, 3, 6)]
    assert sizes[0] == epsilon(mechanism)
    assert sizes == sorted(set(sizes))
    assert sizes[1] >= 2 * sizes[0]


def group_delta(z, q, k, steps, eps):
  """Exact delta of k units by independent coins, by convolved losses.

  The sum of k units at most C each is largest where all are C: a binomial
  mixture. Losses go up to the next cell, so that this is above the exact one.
  """
  cell, size = 1e-4, 2**20
  x = np.linspace(-10 * z, 10 * z + k, 400_001)
  weights = stats.binom.pmf(range(k + 1), k, q)
  densities = [stats.norm.pdf(x, j, z) for j in range(k + 1)]
  mixed, alone = weights @ densities, densities[0]
  deltas = []
  for p, other in ((mixed, alone), (alone, mixed)):
    index = np.ceil(np.log(p / other) / cell).astype(int)
    losses = np.bincount(index % size, p * (x[1] - x[0]), size)
    total = np.fft.irfft(np.fft.rfft(losses) ** steps, size)
    values = cell * ((np.arange(size) + size // 4) % size - size // 4)
    deltas.append(total @ -np.expm1(np.minimum(eps - values, 0)))
  return max(deltas)


@pytest.mark.representatives('3.0-0.3-3-1', '4.0-0.2-2-40')
@pytest.mark.parametrize(
  ('z', 'q', 'k', 'steps'),
  [(2.0, 0.1, 2, 1), (3.0, 0.3, 3, 1), (4.0, 0.2, 2, 40), (6.0, 0.1, 3, 30)],
)
def test_a_group_of_sampled_clients_is_covered(z, q, k, steps):
  """Catches k epsilon at the same delta, which k units multiply."""
  delta = 1e-5
  bound = group_epsilon(poisson(z, steps, q), k, delta=delta)
  assert group_delta(z, q, k, steps, bound) <= delta
  # The control: the epsilon of one unit is too little for the group.
  one = epsilon(poisson(z, steps, q), delta)
  assert group_delta(z, q, k, steps, one) > delta


def test_k_fold_bound_is_that_of_the_curve():
  """Catches a point of the curve that is not the least."""
  mechanism, k, delta = poisson(8.0, 100, 0.2), 3, 1e-5
  each = group_epsilon(mechanism, k, delta=delta) / k
  factor = lambda e: math.expm1(k * e) / math.expm1(e)
  at = lambda e: accounting.compute_delta(mechanism, epsilon=e) * factor(e)
  assert at(each) <= delta * (1 + 1e-6)
  assert at(each * (1 - 1e-3)) > delta


def test_two_of_a_fixed_cohort_are_covered_by_hand():
  """Catches a path of add-or-remove: here one of three units is drawn."""
  x, z, delta = np.linspace(-15, 15, 20_001), 1.5, 1e-3
  pdf = lambda values: np.mean([stats.norm.pdf(x, v, z) for v in values], 0)
  p, other = pdf([1, 1, -1]), pdf([-1, -1, -1])
  mechanism = GaussianMechanism(
    z, 1, FIXED, population=3, max_cohort=1, adjacency=REPLACE
  )
  eps = group_epsilon(mechanism, 2, delta=delta, accountant='rdp')
  for a, b in ((p, other), (other, p)):
    exact = np.sum(np.maximum(a - math.exp(eps) * b, 0)) * (x[1] - x[0])
    assert exact <= delta
  # No more than if everybody took part, two of whom move the sum by 4 C.
  assert eps <= accounting.gaussian_epsilon(z / 4, delta)


def test_a_group_of_allocated_clients_costs_its_own_curve():
  """Catches a group that is taken to be in every round of an epoch."""
  spec = {'sampling': accounting.Sampling.RANDOM_ALLOCATION, 'epoch_steps': 10}
  mechanism = GaussianMechanism(2.0, 40, **spec)
  one, two = (group_epsilon(mechanism, k, delta=1e-6) for k in (1, 2))
  assert 2 * one < two < 4.0


def test_a_group_without_noise_has_no_privacy():
  assert group_epsilon(GaussianMechanism(0.0, 3), 2, delta=1e-5) == INF
  assert group_epsilon(poisson(0.0, 3, 0.1), 2, delta=1e-5) == INF


def test_truncation_under_zero_out_has_the_bound_of_everybody():
  """A fixed set of places: many units cost no more than if all took part."""
  mechanism = GaussianMechanism(30.0, 10, TRUNCATED, 0.5, 20, 12, ZERO)
  eps = group_epsilon(mechanism, 4, delta=1e-3)
  assert eps <= accounting.gaussian_epsilon(30.0 / 4, 1e-3, 10)


LOUD = poisson(0.5, 1000, 0.1)
test_what_says_nothing_of_a_group_is_refused = refused_calls(
  (lambda: group_epsilon(CAPPED, 2, delta=1e-5), 'vacuous'),
  (lambda: group_epsilon(LOUD, 9, delta=1e-5), 'not below 700'),
  (lambda: group_epsilon(LOUD, 0, delta=1e-5), 'k=0 >= 1'),
  (lambda: group_epsilon(LOUD, 2, delta=1.0), 'delta=1'),
)
