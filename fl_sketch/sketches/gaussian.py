"""Gaussian sketch: the reference that theory is written for."""

from fl_sketch.sketches import base
from fl_sketch.sketches import dense
from fl_sketch.sketches import hashing
import jax
import jax.numpy as jnp
import numpy as np


def gaussian(size: int) -> base.Sketch:
  r"""A matrix of independent normal entries, :math:`R_{ij} \sim N(0, 1 / b)`.

  Definition D.2 of Song et al., with b = `size`. Entries come in pairs from two
  hashed words of 24 bits by the transform of Box and Muller, which reaches 5.7
  standard deviations.

  Guarantees, for words that are independent (`hashing.word`):
    linear, and desketch is the adjoint of sketch.
    unbiased: E desketch(sketch(x)) = x.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d + 1) / b) ||x||^2.
    coordinate-wise constant 2: the variance of <h, R^T R g> is
      (||g||^2 ||h||^2 + <g, h>^2) / b.
    costs O(b d) operations: a reference for size up to about 10^3.

  >>> op, x = gaussian(4), {'w': jnp.ones(8)}
  >>> op.sketch(jax.random.key(0), x).shape
  (4,)

  Args:
    size: numbers in a table.

  Returns:
    A `Sketch` whose tables are f32[size]; it raises ValueError if size > d.

  Raises:
    ValueError: size is below 1.
  """
  base.check_positive(size=size)
  promises = base.Properties(
    'gaussian',
    floats=lambda like: size,
    alpha=lambda like: (base.dimension(like) + 1) / size,
    coordinate_wise=lambda like: 2.0,
    printed=lambda like: 3 * base.dimension(like) / size,
  )

  def tile(key, counter):
    pairs = -(-size // 2)
    seeds = hashing.seeds(key, 2 * pairs, hashing.ENTRY)
    words = jax.vmap(hashing.word, (None, 0))(counter, seeds)
    first, second = _normal(words[:pairs], words[pairs:])
    return jnp.concatenate([first, second])[:size] / size**0.5

  return dense.from_tiles(promises, size, tile)


def _normal(first, second):
  """Two independent normals from two words (Box and Muller, 1958)."""
  uniform = lambda w: ((w >> np.uint32(8)) + 1).astype(jnp.float32) * 2.0**-24
  radius = jnp.sqrt(-2 * jnp.log(uniform(first)))
  angle = 2 * np.pi * uniform(second)
  return radius * jnp.cos(angle), radius * jnp.sin(angle)
