"""Attacks on floating point; what is right is audited at 1e-6."""

from fl_sketch.privacy import accounting
from fl_sketch.privacy.auditing import audit, canary_scores
from fl_sketch.privacy.mechanisms import private_mean
from float_sums import FloatRelease
import jax.numpy as jnp
import numpy as np
from private_cases import HP, PADDING_ID, R, broadcast, draws, with_client

# Programs are kept by release, and equal fields make equal tuples.
OLD, NEW = FloatRelease(R, max_cohort=80), private_mean.Release(R)


def test_last_bits_show_the_canary_in_continuous_noise_alone():
  """Catches continuous noise in float32: the score must find it, not ours."""
  z, delta, runs = 1.0, 0.01, 3_000
  canary = with_client(PADDING_ID, 0, np.eye(10)[3] * 100)
  # With a power of two as deviation even floats would have few bits.
  numbers = {'clip_norm': 0.7, 'noise_multiplier': z}
  hp = HP._replace(**{k: jnp.float32(x) for k, x in numbers.items()})
  mechanism = accounting.GaussianMechanism(noise_multiplier=z, steps=1)
  claimed = accounting.compute_epsilon(mechanism, delta=delta)
  still = hp._replace(noise_multiplier=jnp.float32(0))
  quiet = broadcast('dp_fedavg', canary, hp=still)[0][None]
  shown = {}
  for release in OLD, NEW:
    scores = []
    for sent in canary, PADDING_ID:
      seen = draws('dp_fedavg', sent, runs, release=release, hp=hp)[0]
      seen = np.float32(seen)[:, None]
      scores.append(canary_scores.last_bits(seen, quiet))
    significance = 0.05 if release is OLD else 1e-6
    shown[release] = audit.epsilon_lower_bound(
      *scores, delta=delta, significance=significance
    )
  assert shown[NEW] <= claimed
  assert shown[OLD] > 1.2 * claimed
