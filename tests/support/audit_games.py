"""Mechanisms, right and broken, and their audits, which several tests play."""

from fl_sketch import algorithms
from fl_sketch.accounting import types
from fl_sketch.privacy.auditing import canaries
from fl_sketch.privacy.mechanisms.private_mean import CentralRelease
import jax
import jax.numpy as jnp
import numpy as np

NEVER = 1e-6
PUBLIC, SECRET = jax.random.split(jax.random.key(11))
Full, Poisson = types.Sampling.FULL, types.Sampling.POISSON


def claim(noise_multiplier=1.0, steps=1, q=1.0, population=4, **fields):
  fields = {'sampling': Full if q == 1 else Poisson} | fields
  return types.GaussianMechanism(
    noise_multiplier=noise_multiplier, steps=steps, sampling_probability=q,
    population=population, **fields,
  )  # fmt: skip


def game_of(make, claimed):
  signs = np.random.default_rng(0).choice([-1, 1], (claimed.steps, 8))
  canary = np.float32(signs * 8**-0.5)
  hp = algorithms.Hyper(*map(jnp.float32, (0.1, 1.0, 0.5)))
  hp = hp._replace(noise_multiplier=jnp.float32(claimed.noise_multiplier))
  return canaries.Game(make, hp, claimed, canary, PUBLIC)


def algorithm(name, claimed, **options):
  expected = claimed.sampling_probability * claimed.population
  return algorithms.make(
    name, canaries.inner_product, local_steps=2,
    privacy=CentralRelease(expected), **options,
  )  # fmt: skip


def play(game, significance, samples=20_000):
  options = {'samples': samples, 'significance': significance}
  return canaries.audit(game, SECRET, **options)
