"""Noise that a function gives, for reference trajectories with known noise.

Nothing bounds what is released: no epsilon is stated of such a run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.rounds import comms
import jax
import jax.numpy as jnp


class Draw(NamedTuple):
  """Which draw of noise is asked for.

  Attributes:
    key: key[], secret, of this draw alone.
    client: int32[], the id of the client that adds it; None is the server.
    index: 0, or which of several noisy sums of a round it is for; 1 for the
      count of norms of 'quantile'.
  """

  key: jax.Array
  client: jax.Array | None = None
  index: int = 0


Noise = Callable[[Draw, Any, Any], Any]  # (draw, like, stddev) -> noise


def of_server(noise: Noise, draw: Draw, mean: Any, stddev: jax.Array) -> Any:
  """Adds noise of standard deviation ``stddev`` to a mean."""
  return jax.tree.map(jnp.add, mean, noise(draw, mean, stddev))


def of_clients(
  noise: Noise,
  draws: Draw,
  mean: Any,
  stddev: jax.Array,
  weight: jax.Array,
  expected_cohort: float,
) -> Any:
  """Adds one draw a participant, divided by the expected cohort, to a mean.

  Args:
    noise: the function.
    draws: of the clients: key[lanes] and int32[lanes].
    mean: arrays.
    stddev: f32[], of one draw.
    weight: f32[lanes], 0 for a client that is absent.
    expected_cohort: what the sum is divided by.
  """

  def share(key, client):
    return noise(Draw(key, client, draws.index), mean, stddev)

  shares = jax.vmap(share)(draws.key, draws.client)
  divided = {'denominator': expected_cohort}
  given = comms.uplink_stacked_mean(shares, weight, **divided)[0]
  return jax.tree.map(jnp.add, mean, given)
