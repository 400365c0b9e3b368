"""The private mean as it was, float32 and continuous: attacks must catch it."""

from fl_sketch.privacy.mechanisms import private_mean, sums
from fl_sketch.rounds import aggregation as means, chain
import jax
import jax.numpy as jnp


class FloatMean(private_mean.PrivateMean):
  """Contributions are added up in float32, one after another."""

  def uplink(self):
    link = means.mean_over_cohort(denominator=self.release.expected_cohort)

    def update(lane_sum, state, params=None, *, noise, **extra):
      mean, state = link.update(lane_sum, state, params, **extra)
      stddev = self.hp.noise_multiplier * self.hp.clip_norm
      stddev /= self.release.expected_cohort
      xi = sums.gaussian_noise(noise.server, mean, stddev)
      return jax.tree.map(jnp.add, mean, xi), state

    decode = lambda keys, payload, like: self.clipped(payload)
    return chain.Uplink(link.init, update, decode=decode, **self.marks)


class FloatRelease(private_mean.Release):
  """A release by a `FloatMean`."""

  def with_hyper(self, hp):
    return FloatMean(self, hp)
