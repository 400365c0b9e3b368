"""Laws of accounting over drawn mechanisms, from a fixed seed."""

import dataclasses

from accounting_reference import calibrated, delta_of, epsilon
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import Adjacency, GaussianMechanism, Sampling
import hypothesis
from hypothesis import strategies as st
import pytest

few = hypothesis.settings(max_examples=2, derandomize=True, deadline=None)
many = hypothesis.settings(max_examples=30, derandomize=True, deadline=None)

deltas = st.sampled_from([1e-7, 1e-5, 1e-3])
noises = st.floats(1.5, 20)
steps = st.integers(1, 200)
probabilities = st.floats(0.02, 0.95)
adjacencies = st.sampled_from([*Adjacency])


@st.composite
def sampled(draw):
  return GaussianMechanism(
    draw(noises), draw(steps), Sampling.POISSON, draw(probabilities)
  )


@st.composite
def full(draw):
  return GaussianMechanism(
    draw(st.floats(0.05, 1e4)),
    draw(st.integers(1, 10**6)),
    adjacency=draw(adjacencies),
  )


def check_monotone(mechanism, delta, accountant, slack):
  """Less noise, less delta and more steps never cost less."""
  eps = epsilon(mechanism, delta, accountant)
  louder = dataclasses.replace(
    mechanism, noise_multiplier=1.3 * mechanism.noise_multiplier
  )
  longer = dataclasses.replace(mechanism, steps=2 * mechanism.steps)
  assert epsilon(louder, delta, accountant) <= eps * (1 + slack) + slack
  assert epsilon(longer, delta, accountant) >= eps * (1 - slack) - slack
  assert epsilon(mechanism, delta / 3, accountant) >= eps
  if mechanism.sampling is Sampling.POISSON:
    q = mechanism.sampling_probability
    rarer = dataclasses.replace(mechanism, sampling_probability=q / 2)
    assert epsilon(rarer, delta, accountant) <= eps * (1 + slack) + slack


@many
@hypothesis.given(full(), deltas)
def test_the_closed_form_is_monotone(mechanism, delta):
  check_monotone(mechanism, delta, 'pld', 1e-11)
  visible = delta_of(mechanism, 0.0)  # no epsilon is 0 by accident
  assert (epsilon(mechanism, 1e-9) == 0) == (visible <= 1e-9)


@few
@hypothesis.given(sampled(), deltas)
def test_curves_are_monotone_and_renyi_is_above_the_losses(mechanism, delta):
  """And all participate at worst: at q = 1 it is the closed form."""
  check_monotone(mechanism, delta, 'pld', 1e-3)
  check_monotone(mechanism, delta, 'rdp', 1e-9)
  eps = epsilon(mechanism, delta)
  assert epsilon(mechanism, delta, 'rdp') >= eps - 1e-3
  z, count = mechanism.noise_multiplier, mechanism.steps
  closed = accounting.gaussian_epsilon(z, delta, count)
  assert eps <= closed + 1e-3
  certain = dataclasses.replace(mechanism, sampling_probability=1.0)
  assert epsilon(certain, delta) == closed


@many
@hypothesis.given(st.floats(1e-3, 500), deltas, st.integers(1, 10**5))
def test_calibration_inverts_the_closed_form(target, delta, count):
  for adjacency in Adjacency:
    z = calibrated(target, delta, count, adjacency=adjacency)
    mechanism = GaussianMechanism(z, count, adjacency=adjacency)
    assert target * (1 - 1e-6) <= epsilon(mechanism, delta) <= target


@pytest.mark.nightly
@few
@hypothesis.given(sampled(), st.floats(0.1, 6))
def test_epsilon_and_delta_are_inverse(mechanism, eps):
  for accountant in ('pld', 'rdp'):
    delta = delta_of(mechanism, eps, accountant)
    if 1e-11 < delta < 0.1:
      inverse = epsilon(mechanism, delta, accountant)
      assert inverse == pytest.approx(eps, rel=1e-3, abs=1e-3)
