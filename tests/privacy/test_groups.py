"""Epsilon of several units of one person against closed forms, brute force."""

import math

from accounting_reference import INF, REPLACE, TRUNCATED, epsilon, poisson
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import Adjacency, GaussianMechanism
from fl_sketch.privacy.accounting.groups import group_epsilon
import numpy as np
import pytest
from refusals import refused_calls
from scipy import stats

CAPPED = GaussianMechanism(1.21, 100, TRUNCATED, 0.1, 100, 33)


@pytest.mark.parametrize('adjacency', Adjacency)
def test_everybody_is_the_closed_form_of_k_times_the_sensitivity(adjacency):
  """Catches the k-fold bound, or C for 2C, where there is a closed form."""
  mechanism = GaussianMechanism(40.0, 100, adjacency=adjacency)
  moved, k = 2 if adjacency is REPLACE else 1, 7
  closed = accounting.gaussian_epsilon(40.0 / (moved * k), 1e-6, 100)
  got = group_epsilon(mechanism, k, delta=1e-6)
  assert got == pytest.approx(closed, rel=1e-12)


def test_one_unit_is_no_group_and_more_cost_more():
  mechanism = poisson(8.0, 100, 0.2)
  sizes = [group_epsilon(mechanism, k, delta=1e-5) for k in (1, 2, 6)]
  assert sizes[0] == epsilon(mechanism)
  assert sizes == sorted(set(sizes))
  assert sizes[1] >= 2 * sizes[0]
  for silent in poisson(0.0, 3, 1.0), poisson(0.0, 3, 0.1):
    assert group_epsilon(silent, 2, delta=1e-5) == INF


def group_delta(z, q, k, steps, eps):
  """Exact delta of k units by coins, a binomial mixture, from above."""
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


def test_a_group_of_sampled_clients_is_covered():
  """Catches k epsilon at the same delta, which k units multiply."""
  z, q, k, steps, delta = 4.0, 0.2, 2, 40, 1e-5
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


def test_a_group_of_allocated_clients_costs_its_own_curve():
  """Catches a group that is taken to be in every round of an epoch."""
  spec = {'sampling': accounting.Sampling.RANDOM_ALLOCATION, 'epoch_steps': 10}
  mechanism = GaussianMechanism(2.0, 40, **spec)
  one, two = (group_epsilon(mechanism, k, delta=1e-6) for k in (1, 2))
  assert 2 * one < two < 4.0


LOUD = poisson(0.5, 1000, 0.1)
test_what_says_nothing_of_a_group_is_refused = refused_calls(
  (lambda: group_epsilon(CAPPED, 2, delta=1e-5), 'vacuous'),
  (lambda: group_epsilon(LOUD, 9, delta=1e-5), 'not below 700'),
  (lambda: group_epsilon(LOUD, 0, delta=1e-5), 'k=0 must be >= 1'),
  (lambda: group_epsilon(LOUD, 2, delta=1.0), 'delta=1'),
)
