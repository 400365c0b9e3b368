"""Epsilon by computations of our own: a Fourier transform and quadrature."""

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


def step_masses(mechanism, cell, size, swap):
  """Probabilities of the privacy loss of a step, rounded to whole cells."""
  z, q = mechanism.noise_multiplier, mechanism.sampling_probability
  x = np.linspace(-13 * z - 1, 13 * z + 1, 400_001)
  p, other = step_pair(mechanism, x)
  loss = p - other
  edges = (np.arange(size + 1) - size // 2 - 0.5) * cell
  at = np.interp(edges, loss, x)
  at[edges < loss[0]], at[edges > loss[-1]] = -np.inf, np.inf
  mixture = lambda v: (
    (1 - q) * np.diff(special.ndtr(at / z))
    + q * np.diff(special.ndtr((at - v) / z))
  )
  if not swap:
    return np.roll(mixture(1.0), -(size // 2))
  q = q if mechanism.adjacency is REPLACE else 0.0
  return np.roll(mixture(-1.0)[::-1], -(size // 2 - 1))


def reference_deltas(mechanisms, epsilons, cell=2e-5, size=2**21):
  """delta of the composition by the Fourier transform of the losses."""
  losses = (np.arange(size) - size // 2) * cell
  deltas = []
  for swap in (False, True):
    transform = 1.0
    for mechanism in mechanisms:
      masses = step_masses(mechanism, cell, size, swap)
      transform = transform * np.fft.rfft(masses) ** mechanism.steps
    total = np.roll(np.fft.irfft(transform, size), size // 2)
    lost = lambda e, total=total: -np.expm1(np.minimum(e - losses, 0)) @ total
    deltas.append([lost(e) for e in epsilons])
  return np.max(deltas, axis=0)


def check_reference(mechanisms, delta):
  """The accountant lies in [e - 1e-6, e (1 + 1e-3) + 1e-3]."""
  eps = accounting.compute_epsilon(accounting.compose(mechanisms), delta=delta)
  # delta falls with epsilon: the band is checked through its two ends.
  ends = [eps + 1e-6, (eps - 1e-3) / (1 + 1e-3)]
  above, below = reference_deltas(mechanisms, ends)
  assert above <= delta <= below


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
