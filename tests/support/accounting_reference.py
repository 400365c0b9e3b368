"""Mechanisms of the tests, and short names of what is asked of them."""

import decimal
import functools
import math

from fl_sketch import accounting
from fl_sketch.accounting import Adjacency, GaussianMechanism, Sampling
import jax.numpy as jnp
import numpy as np

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
