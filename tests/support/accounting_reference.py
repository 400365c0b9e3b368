"""Mechanisms of the tests, and Renyi's epsilon by quadrature."""

import decimal
import functools
import math

from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import Adjacency, GaussianMechanism, Sampling
import jax.numpy as jnp
import numpy as np
from scipy import special

ADD, ZERO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.ZERO_OUT
REPLACE = Adjacency.REPLACE_ONE
FULL, POISSON = Sampling.FULL, Sampling.POISSON
TRUNCATED = Sampling.TRUNCATED_POISSON
FIXED = Sampling.FIXED_WITHOUT_REPLACEMENT
ALLOCATION = Sampling.RANDOM_ALLOCATION

NAN, INF = math.nan, math.inf
ONE = GaussianMechanism(1.0, 1)
SIZES = {'population': 100, 'max_cohort': 20}
# What is no number on the host.
FOREIGN = ['1', None, 1j, decimal.Decimal(1), np.ones(1), jnp.ones(()), True]


def mechanism(**fields):
  return GaussianMechanism(**{'noise_multiplier': 1.0, 'steps': 1, **fields})


def poisson(z, steps, q, **spec):
  sampling = POISSON if q < 1 else FULL
  return GaussianMechanism(z, steps, sampling, q, **spec)


@functools.cache
def epsilon(mechanism, delta=1e-5, accountant='pld'):
  return accounting.compute_epsilon(
    mechanism, delta=delta, accountant=accountant
  )


def delta_of(mechanism, epsilon, accountant='pld'):
  return accounting.compute_delta(
    mechanism, epsilon=epsilon, accountant=accountant
  )


def calibrated(epsilon, delta, steps, q=1.0, accountant='pld', **spec):
  spec |= {'sampling_probability': q, 'accountant': accountant}
  return accounting.calibrate_noise_multiplier(
    epsilon=epsilon, delta=delta, steps=steps, **spec
  )


def step_pair(mechanism, x):
  """Log densities of the dominating pair of a step, without the normal's."""
  z, q = mechanism.noise_multiplier, mechanism.sampling_probability
  unit = lambda v: (2 * v * x - v**2) / (2 * z**2)
  with np.errstate(divide='ignore'):
    none = np.full_like(x, np.log1p(-q) if q < 1 else -np.inf)
  mixture = lambda v: np.logaddexp(none, math.log(q) + unit(v))
  other = mixture(-1.0) if mechanism.adjacency is REPLACE else np.zeros_like(x)
  return mixture(1.0), other


ORDERS = [1 + k / 10 for k in range(1, 100)] + [*range(11, 65), 128, 256, 512]


def renyi_epsilon(mechanism, delta):
  """Renyi's bound by quadrature, at the orders of the library."""
  z = mechanism.noise_multiplier
  epsilons = []
  for order in [*ORDERS, 1024]:
    x = np.arange(-12 * z, order + 12 * z, z / 100)
    p, _ = step_pair(mechanism, x)
    log_density = -(x**2) / (2 * z**2) - math.log(z * math.sqrt(2 * math.pi))
    log_moment = special.logsumexp(order * p + log_density) + math.log(z / 100)
    divergence = mechanism.steps * log_moment / (order - 1)
    slack = math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    epsilons.append(divergence + slack)
  return min(epsilons)
