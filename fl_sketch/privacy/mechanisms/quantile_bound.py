"""Private means whose bound follows a quantile of the norms."""

import dataclasses
from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import clipping, sums
from fl_sketch.rounds import chain, comms
import jax
import jax.numpy as jnp


class QuantileState(NamedTuple):
  """State of a bound that follows a quantile; all of it has been released."""

  clip_norm: jax.Array
  bill: comms.Bill


def announced_count(release: Any, before: Any, after: Any) -> jax.Array:
  """Return the noisy count of norms within a bound, less 1/2 each: f32[].

  The bounds that two states, before a round and after it, announce tell it.
  """
  old, new = (
    chain.state_of(x, QuantileState).clip_norm for x in (before, after)
  )
  excess = jnp.log(old / new) / release.quantile_lr
  return (excess + release.quantile - 0.5) * release.expected_cohort


def uplink(private: Any) -> chain.Link:
  r"""Return the link of a `PrivateMean` whose bound follows a quantile.

  :math:`C \leftarrow C \exp(-\eta (\tilde b - \gamma))`, where :math:`\tilde b`
  is the noisy share of norms within C. Indicators less 1/2 have sensitivity
  1/2; sum and count together have the multiplier z if the sum has
  :math:`(z^{-2} - (2 \sigma_b)^{-2})^{-1/2}`. Andrew et al., NeurIPS 2021,
  arXiv:1905.03871, Algorithm 1.
  """
  release, hp = private
  sigma = release.count_stddev
  spared = jnp.float32(hp.noise_multiplier) ** -2.0 - (2 * sigma) ** -2.0
  sum_multiplier = spared**-0.5  # NaN, and so no finite sum, if sigma is short
  clip = private._replace(release=dataclasses.replace(release, bound='clip'))
  half = {'clip_norm': 0.5, 'noise_multiplier': 2 * sigma}
  count = clip._replace(hp=hp._replace(**half)).mean(1)

  def update(payload, state, params=None, *, comm, weight, **extra):
    del params
    numbers = {'clip_norm': state.clip_norm, 'noise_multiplier': sum_multiplier}
    total = clip._replace(hp=hp._replace(**numbers)).mean(0)
    mean, sent = total.take(payload, comm=comm, weight=weight, **extra)
    norms = jax.vmap(lambda x: clipping.clip_by_l2_norm(x, 1.0)[1])(payload)
    centred = (norms <= state.clip_norm) - jnp.float32(0.5)
    noisy, _ = count.take(centred, comm=comm, weight=weight, **extra)
    excess = noisy + 0.5 - release.quantile
    clip_norm = state.clip_norm * jnp.exp(-release.quantile_lr * excess)
    clip_norm = comm.announce(jnp.clip(clip_norm, *sums.CLIP_NORMS))
    # Up: one bit, in a byte. Down: the bound, for the next round.
    more = comms.bill(up=1, down=comms.nbytes(clip_norm))
    return mean, QuantileState(clip_norm, comms.total_bill([sent, more]))

  def init(params):
    del params
    return QuantileState(jnp.float32(hp.clip_norm), comms.bill())

  return chain.Link(init, update, chain.EXCHANGE, **private.marks)
