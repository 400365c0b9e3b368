"""A sketch that folds the vector, with random signs, onto a short table."""

import dataclasses

from fl_sketch import sketches
import jax
import jax.numpy as jnp

from . import new

VECTOR = sketches.identity()  # flattens a tree, and back


@sketches.register(hyper=('shrink',))
@dataclasses.dataclass(frozen=True)
class folded(sketches.Sketch):
  """Coordinate i goes to bucket i mod size; what is read is shrunk.

  Unbiased with shrink = 1 alone, of which the Properties are.
  """

  size: int
  shrink: float = 1.0

  @property
  def properties(self):
    alpha = lambda like: -(-sketches.dimension(like) // self.size) - 1
    return sketches.Properties('folded', lambda like: self.size, alpha, None)

  def sketch(self, key, tree):
    x = VECTOR.sketch(key, tree)
    signed = self.signs(key, x.size) * x
    padded = jnp.pad(signed, (0, -x.size % self.size))
    return padded.reshape(-1, self.size).sum(0)

  def desketch(self, key, table, like):
    d = sketches.dimension(like)
    estimate = self.shrink * self.signs(key, d) * jnp.resize(table, d)
    return VECTOR.desketch(key, estimate, like)

  def zero_table(self, tree):
    return jnp.zeros(self.size)

  def signs(self, key, d):
    return jax.random.rademacher(key, (d,), jnp.float32)


def get_config():
  """SAFL on scikit-learn's digits."""
  c = new()
  c.rounds, c.algorithm, c.server_lr = 60, 'iterative_sketching', 0.3
  c.sketch.kind, c.sketch.size, c.sketch.shrink = 'folded', 301, 1.0
  return c
