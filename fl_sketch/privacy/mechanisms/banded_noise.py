r"""Integer noise that is correlated over rounds, without state.

:math:`n_t = z_t + \lfloor 1/2 + \sum_{1 \leq j < p} q_j z_{t-j} / 2^{15}
\rfloor`, exactly, in 32-bit arithmetic. Each :math:`z_s` is a draw of
`grid.noise` under the key of round s, and is drawn again in each of the p
rounds that need it: no state or checkpoint contains noise.
"""

from fl_sketch.accounting import correlation as correlation_lib
from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.rounds import keys as keys_lib, marks
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp

_BITS = correlation_lib.BITS


def draw(
  index: jax.Array | int,
  noise: keys_lib.NoiseKeys,
  like: Tree,
  points: grid_lib.Grid,
  correlation: correlation_lib.Correlation,
) -> Tree:
  """Draw the noise of the sum of one round: uint32, the formula modulo 2^32.

  It depends on the run's secret key and the round alone. `like` is of
  `grid.encode`, or its shapes; all rounds of an epoch have one grid.
  """
  weights = jnp.array(correlation.weights, jnp.int32)
  age = jnp.asarray(index, jnp.int32) % correlation.rounds

  def add(j, sums):
    drawn = grid_lib.noise(keys_lib.server_key(noise, index - j), like, points)
    return jax.tree.map(lambda x, s: _weighed(x, weights[j], s), drawn, sums)

  full = lambda x, value: jnp.full(x.shape, value, jnp.int32)
  start = jax.tree.map(lambda x: (full(x, 0), full(x, 2 ** (_BITS - 1))), like)
  # Draws of rounds before the epoch count 0.
  count = jnp.minimum(age + 1, correlation.bands)
  sums = jax.lax.fori_loop(0, count, add, start)
  drawn = jax.tree.map(lambda _, s: _quotient(s), like, sums)
  return marks.drawn(drawn, noise.server, points[:3])


def _weighed(drawn, weight, sums):
  """Add q z to a sum in two parts, of the high and of the low bits of z."""
  # The first part may wrap modulo 2^32. The second never does: it is 15 bits
  # times weights whose negative ones add up to 2^15 at most.
  high, low = sums
  z = drawn.astype(jnp.int32)
  mask = 2**_BITS - 1
  return high + weight * (z >> _BITS), low + weight * (z & mask)


def _quotient(sums):
  """Divide a sum that began with 2^14 by 2^15, which rounds it."""
  high, low = sums
  return (high + (low >> _BITS)).astype(jnp.uint32)
