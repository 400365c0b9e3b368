"""Laws of accounting over drawn mechanisms, from a fixed seed."""

import dataclasses

from accounting_reference import epsilon
from fl_sketch import accounting
from fl_sketch.accounting import Adjacency, GaussianMechanism, Sampling
import hypothesis
from hypothesis import strategies as st
import pytest

few = hypothesis.settings(max_examples=2, derandomize=True, deadline=None)

deltas = st.sampled_from([1e-3, 1e-5, 1e-9, 1e-12])
adjacencies = st.sampled_from([*Adjacency])
POISSON = {'sampling': Sampling.POISSON, 'epoch_steps': None}


@st.composite
def sampled(draw):
  """Samples or epochs, whose epsilon is neither 0 nor 1e3."""
  q = 1 - draw(st.floats(0.01, 0.9999))
  steps = int(10 ** draw(st.floats(0, 5)))
  z = draw(st.floats(0.6, 3.0)) * max(1.0, q * steps**0.5)
  adjacency = draw(adjacencies)
  spec = POISSON | {'sampling_probability': q}
  if adjacency is not Adjacency.REPLACE_ONE and draw(st.booleans()):
    length = min(200, round(1 / q))
    spec = {'sampling': Sampling.RANDOM_ALLOCATION, 'epoch_steps': length}
  return GaussianMechanism(z, steps, adjacency=adjacency, **spec)


def check_monotone(mechanism, delta, accountant, slack):
  """Less noise, less delta and more steps never cost less."""
  eps = epsilon(mechanism, delta, accountant)
  louder = dataclasses.replace(
    mechanism, noise_multiplier=1.3 * mechanism.noise_multiplier
  )
  longer = dataclasses.replace(mechanism, steps=2 * mechanism.steps)
  assert epsilon(louder, delta, accountant) <= eps * (1 + slack) + slack
  assert epsilon(longer, delta, accountant) >= eps * (1 - slack) - slack
  if delta > 3e-12:
    assert epsilon(mechanism, delta / 3, accountant) >= eps
  if mechanism.sampling is Sampling.POISSON:
    q = mechanism.sampling_probability
    rarer = dataclasses.replace(mechanism, sampling_probability=q / 2)
    assert epsilon(rarer, delta, accountant) <= eps * (1 + slack) + slack


releases = st.tuples(
  st.floats(0, 6), st.floats(-6, -0.01), st.sampled_from([1, 7, 10**4])
)


@pytest.mark.parametrize(
  'examples', [4, pytest.param(60, marks=pytest.mark.nightly)]
)
def test_epsilon_of_samples_is_monotone(examples):
  """Catches a width of cells, a window or a tilt that pays for a release."""
  settings = hypothesis.settings(few, max_examples=examples)
  settings(hypothesis.given(sampled(), deltas, releases)(check_samples))()


def check_samples(mechanism, delta, more):
  """Up to a relative 1e-3: both are upper bounds, looser of a single step."""
  check_monotone(mechanism, delta, 'pld', 1e-3)
  eps, (log_noise, log_q, steps) = epsilon(mechanism, delta), more
  other = dataclasses.replace(
    mechanism, noise_multiplier=10**log_noise, steps=steps,
    **POISSON | {'sampling_probability': 10**log_q},
  )  # fmt: skip
  certain = dataclasses.replace(other, sampling_probability=1.0)
  for added in (other, certain):
    both = accounting.compose([mechanism, added])
    assert epsilon(both, delta) >= eps * (1 - 1e-3)
  times = -(-mechanism.steps // (mechanism.epoch_steps or 1))
  everybody = GaussianMechanism(
    mechanism.noise_multiplier, times, adjacency=mechanism.adjacency
  )
  assert eps <= epsilon(everybody, delta) * (1 + 1e-3)


@few
@hypothesis.given(sampled(), deltas)
def test_renyi_is_monotone_and_above_the_losses(mechanism, delta):
  """Catches an epsilon below that of privacy losses, which is smaller."""
  zero_out = {'adjacency': Adjacency.ZERO_OUT}
  q = mechanism.sampling_probability
  poisson = POISSON | zero_out | {'sampling_probability': q}
  mechanism = dataclasses.replace(mechanism, **poisson)
  check_monotone(mechanism, delta, 'rdp', 1e-9)
  assert epsilon(mechanism, delta, 'rdp') >= epsilon(mechanism, delta) - 1e-3
