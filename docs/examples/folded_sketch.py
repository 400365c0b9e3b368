"""A sketch that folds the vector, with random signs, onto a short table."""

from fl_sketch import sketches
import jax
import jax.numpy as jnp

from . import new

VECTOR = sketches.identity()  # flattens a tree, and back


@sketches.register(hyper=('shrink',))
def folded(size: int, shrink: float = 1.0):
  """Coordinate i goes to bucket i mod size; what is read is shrunk.

  Unbiased with shrink = 1 alone, of which the Properties are.
  """
  signs = lambda key, d: jax.random.rademacher(key, (d,), jnp.float32)
  alpha = lambda like: -(-sketches.dimension(like) // size) - 1

  def sketch(key, tree):
    x = VECTOR.sketch(key, tree)
    signed = jnp.pad(signs(key, x.size) * x, (0, -x.size % size))
    return signed.reshape(-1, size).sum(0)

  def desketch(key, table, like):
    d = sketches.dimension(like)
    estimate = shrink * signs(key, d) * jnp.resize(table, d)
    return VECTOR.desketch(key, estimate, like)

  stated = sketches.Properties('folded', lambda like: size, alpha, None)
  return sketches.Sketch(sketch, desketch, lambda _: jnp.zeros(size), stated)


def get_config():
  """SAFL on scikit-learn's digits."""
  c = new()
  c.rounds, c.algorithm, c.server_lr = 60, 'iterative_sketching', 0.3
  c.sketch.kind, c.sketch.size, c.sketch.shrink = 'folded', 301, 1.0
  return c
