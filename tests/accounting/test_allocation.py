"""Random allocation: against quadrature and closed-form moments."""

import itertools
import math

import accounting_reference as ref
from accounting_reference import epsilon, poisson
from fl_sketch import accounting
from fl_sketch.accounting import (
  GaussianMechanism,
  allocation,
  profiles,
  tilted_losses,
)
import numpy as np
import pytest
from scipy import special, stats

CELL = 2.0**-13
EPSILONS = (0.05, 1.0, 2.0)


def allocated(z, steps, epoch_steps, **spec):
  spec['epoch_steps'] = epoch_steps
  return GaussianMechanism(z, steps, ref.ALLOCATION, **spec)


def deltas(z, epoch_steps, steps, eps):
  """Accounted delta of one epoch, of removal and of addition."""
  got = []
  for kind in 'remove', 'add':
    one = allocation.Epoch(kind, z, epoch_steps, steps), 1
    curve = tilted_losses.Composition(((one,),), CELL)
    got.append(curve.deltas(np.array([eps]))[0])
  return np.array(got)


def call(k, z):
  """E[max(Y - k, 0)] of the log-normal Y of mean 1: Black and Scholes."""
  with np.errstate(divide='ignore', invalid='ignore'):
    d = z * (0.5 / z**2 - np.log(k))
    price = special.ndtr(d) - k * special.ndtr(d - 1 / z)
  return np.where(k > 0, price, 1 - k)


def put(k, z):
  """E[max(k - Y, 0)]; not by parity, which cancels in the tail."""
  with np.errstate(divide='ignore', invalid='ignore'):
    d = z * (0.5 / z**2 - np.log(k))
    price = k * special.ndtr(1 / z - d) - special.ndtr(-d)
  return np.where(k > 0, price, 0)


def nodes(z, count, spacing):
  """Quadrature of count - 1 log-normals: their sums and their weights."""
  w = np.arange(-9, 9 + 1 / z, spacing)
  y, weight = np.exp(w / z - 0.5 / z**2), stats.norm.pdf(w) * spacing
  sums, weights = np.zeros(1), np.ones(1)
  for _ in range(count - 1):
    sums = np.add.outer(sums, y).ravel()
    weights = np.multiply.outer(weights, weight).ravel()
  return sums, weights


def exact(z, epoch_steps, steps, eps, spacing=0.03):
  """Delta of one epoch, of removal and of addition, by quadrature."""
  sums, weights = nodes(z, steps, spacing)
  present = epoch_steps - steps + sums
  t, growth = epoch_steps, math.exp(eps)
  removed = call(t * growth - present, z) / t
  added = put(t / growth - present, z) * growth / t
  return np.array([weights @ removed, weights @ added])


@pytest.mark.parametrize(('steps', 'times'), [(1, 1), (5, 1), (6, 2), (11, 3)])
def test_an_epoch_that_is_cut_is_a_participation(steps, times):
  """Catches a unit whose round of the last, short epoch is not counted."""
  epochs = profiles.full_participation(allocated(1.0, steps, 5))
  assert epochs == profiles.full_participation(ref.mechanism(steps=times))


@pytest.mark.parametrize(
  ('z', 'epoch_steps', 'steps'), [(0.6, 2, 1), (2.0, 3, 2), (0.6, 3, 3)]
)
def test_an_epoch_of_two_or_three_steps_by_quadrature(z, epoch_steps, steps):
  """Catches a law of the ratio that is too narrow, or a lost tail."""
  for eps in EPSILONS:
    true = exact(z, epoch_steps, steps, eps)
    got = deltas(z, epoch_steps, steps, eps)
    assert np.all(got >= true * (1 - 1e-9))
    assert np.all(got <= true * 1.003 + 1e-7)


@pytest.mark.parametrize(
  ('z', 'epoch_steps', 'steps'), [(0.5, 12, 12), (1.5, 50, 13), (100.0, 7, 5)]
)
def test_moments_of_the_ratio_are_never_below_their_closed_form(
  z, epoch_steps, steps
):
  """Catches a spread that loses its mean, and cells that are too wide."""
  law = allocation.ratio(z, epoch_steps, steps)
  assert law.mass.sum() == pytest.approx(1, abs=1e-12)
  assert law.mass @ law.values == pytest.approx(1, abs=1e-12)
  orders = np.arange(4)  # the fourth has a part in the tail that is left out
  factorials = special.factorial(orders)
  each = np.exp(orders * (orders - 1) / (2 * z**2)) / factorials
  total = (epoch_steps - steps) ** orders / factorials
  for _ in range(steps):
    total = np.convolve(total, each)[:4]
  for order in (2, 3):
    true = total[order] * factorials[order] / epoch_steps**order
    got = law.mass @ law.values**order
    excess, variance = got - true, law.mass @ law.values**2 - 1
    assert -1e-12 * true <= excess <= 1.5e-3 * order**2 * variance * true


def test_epsilon_grows_over_the_rounds_of_an_epoch():
  """Catches an incomplete epoch that is left out, or counted as a whole one."""
  mechanism = allocated(1.0, 12, 4)
  curve = accounting.epsilon_curve(mechanism, range(1, 7), delta=1e-5)
  assert all(a < b for a, b in itertools.pairwise(curve))
  assert curve[4 - 1] == pytest.approx(epsilon(allocated(1.0, 4, 4)), rel=1e-6)
  coins = accounting.epsilon_curve(poisson(1.0, 1, 0.25), [1, 2], delta=1e-5)
  assert curve[0] == pytest.approx(coins[0], rel=1e-3)  # one step: one coin
  assert curve[1] < coins[1]


def test_little_noise_is_bounded_by_one_release_an_epoch():
  """Catches an overflow where the ratio has no floats."""
  closed = accounting.gaussian_epsilon(0.05, 1e-5, 2)
  eps = epsilon(allocated(0.05, 10, 5))
  assert closed <= eps <= closed * (1 + 1e-6)
  full = accounting.gaussian_epsilon(2.0, 1e-5, 3)
  assert epsilon(allocated(2.0, 3, 1)) == full  # epochs of one step
  at_all = epsilon(allocated(1e-4, 10, 5))
  assert at_all == accounting.gaussian_epsilon(1e-4, 1e-5, 2)


def test_it_composes_with_other_mechanisms():
  """Catches losses of another grid, and releases with coins of their own."""
  parts = [allocated(2.0, 10, 5), GaussianMechanism(5.0, 2)]
  eps = epsilon(accounting.compose(parts))
  assert max(map(epsilon, parts)) < eps < sum(map(epsilon, parts))
  epochs = accounting.compose([allocated(2.0, 5, 5)] * 2)
  assert epsilon(epochs) == epsilon(parts[0])
  twice = allocated(2.0 * math.sqrt(2), 10, 5, releases_per_step=2)
  assert epsilon(twice) == pytest.approx(epsilon(parts[0]), rel=1e-9)
