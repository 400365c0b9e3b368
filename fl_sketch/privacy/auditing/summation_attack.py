r"""Measures how far one client moves a private sum by the others' rounding.

In float32 the sum of N clients can move by :math:`(1 + N^2 2^{-26}) C`: half of
the others bring it to a power of two, above which a number has one bit less;
the other half then send what is rounded to a whole last bit below that power
and to nothing above it. One client decides which. Integers move by C at most.

Source: Casacuberta, Shoemate, Vadhan, Wagaman, CCS 2022, arXiv:2207.10635.
"""

import math
from typing import Any

from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import aggregation as means, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
import jax
import jax.numpy as jnp
import numpy as np


def moved(
  release: private_mean.Release,
  clients: int,
  mesh: jax.sharding.Mesh,
  clients_per_step: int | None = 1,
) -> float:
  """Returns by how many clip norms a client moves the sum of a private round.

  Two rounds without noise are played: the canary takes part in one of them. The
  cohort, over the shards of the mesh, is the canary and 2^k who round for it. A
  number of clients below 5, or that is not 2^k + 1, raises ValueError.
  """
  half = (clients - 1) // 2
  if clients < 5 or clients != 2 ** round(math.log2(clients - 1)) + 1:
    raise ValueError(f'{clients=} is not 2^k + 1 with k >= 2.')
  one, zero = jnp.float32(1), jnp.float32(0)
  hp = Hyper(one, one, clip_norm=one, noise_multiplier=zero)
  own = {'expected_cohort': float(clients), 'max_cohort': clients}
  if release.trust == 'secure_aggregation':  # masks of all pairs take long
    own['neighbours'] = 2
  own = release._replace(**own, min_honest=None)
  fn = rounds.cohort_step(_sum(own), mesh, clients_per_step=clients_per_step)
  step = jax.jit(fn)
  state = rounds.init(_sum(own)(hp), jnp.zeros(2), clients)
  # Lanes that are worked on at once are added up first.
  less = -(half * 2.0**-25) * (1 + 2.0**-20) / (clients_per_step or 1)
  sent = np.repeat([1.0, 1.0, less], [1, half, clients - 1 - half])
  sent = np.stack([sent, np.zeros(clients)], 1).astype(np.float32)
  ids = np.arange(clients, dtype=np.int32)
  keys = jax.random.key(0), None, jax.random.key(1)
  sums = []
  for canary in (1, 0):
    weight = np.where(ids == 0, canary, 1).astype(np.float32)
    mean = step(hp, state, rounds.Cohort(ids, weight, sent), *keys)[0]
    sums.append(np.asarray(mean, np.float64) * clients)
  return float(np.linalg.norm(sums[0] - sums[1]))


def _sum(release):
  """Builds the algorithm that broadcasts the mean of what clients hold."""
  send = lambda params, batches, key, correction: (batches, {})

  def make(hp: Hyper) -> Algorithm:
    own: Any = release.with_hyper(hp)
    return federated(send, means.mean_over_cohort(privacy=own), t.broadcast())

  return make
