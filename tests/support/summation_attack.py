r"""Attack on sums of floats: one client moves them by the others' rounding.

One client moves a float32 sum of N clients by up to :math:`(1 + N^2 2^{-26})
C`: half of the others bring it to a power of two, and the other half send what
is rounded to a last bit below that power and to nothing above it. Integers move
by C at most.

Source: Casacuberta, Shoemate, Vadhan, Wagaman, CCS 2022, arXiv:2207.10635.
"""

import math

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
  """Return by how many clip norms a client moves the sum of a private round.

  It runs two rounds without noise; the canary takes part in one. The cohort is
  the canary and 2^k others, k >= 2, or ValueError is raised.
  """
  half = (clients - 1) // 2
  if clients < 5 or clients != 2 ** round(math.log2(clients - 1)) + 1:
    raise ValueError(f'{clients=} must be 2^k + 1 with k >= 2.')
  one, zero = jnp.float32(1), jnp.float32(0)
  hp = Hyper(one, one, clip_norm=one, noise_multiplier=zero)
  release = release._replace(
    expected_cohort=float(clients), max_cohort=clients,
    min_honest=None, neighbours=None,
  )  # fmt: skip
  make = _sum(release)
  step = jax.jit(
    rounds.cohort_step(make, mesh, clients_per_step=clients_per_step)
  )
  state = rounds.init(make(hp), jnp.zeros(2), clients)
  # Lanes of one step are added up first.
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


def _sum(release: private_mean.Release) -> rounds.Make:
  """Return the algorithm that broadcasts the mean of what clients hold."""
  send = lambda params, batches, key, correction: (batches, {})

  def make(hp: Hyper) -> Algorithm:
    uplink = means.mean_over_cohort(privacy=release.with_hyper(hp))
    return federated(send, uplink, t.broadcast())

  return make
