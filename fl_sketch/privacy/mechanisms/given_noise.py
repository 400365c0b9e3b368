"""Noise that a function gives, for reference trajectories with known noise.

Nothing bounds what is released: no epsilon is stated of such a run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.rounds import comms
import jax
import jax.numpy as jnp


class Draw(NamedTuple):
  """Which draw of noise is asked for."""

  key: jax.Array  # key[], secret, of this draw alone
  client: jax.Array | None = None  # int32[], who adds it; None: the server
  index: int = 0  # of the noisy sum in a round; 1: of norms, for 'quantile'


Noise = Callable[[Draw, Any, Any], Any]  # (draw, like, stddev) -> noise


def of_clients(
  noise: Noise,
  draws: Draw,
  mean: Any,
  stddev: jax.Array,
  weight: jax.Array,
  expected_cohort: float,
) -> Any:
  """Adds one draw a participant, divided by the expected cohort, to a mean.

  Draws have key[lanes] and int32[lanes]; each has the deviation ``stddev``.
  """
  one = lambda key, client: noise(Draw(key, client, draws.index), mean, stddev)
  shares = jax.vmap(one)(draws.key, draws.client)
  given = comms.uplink_stacked_mean(shares, weight, None, expected_cohort)[0]
  return jax.tree.map(jnp.add, mean, given)
