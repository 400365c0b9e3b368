"""AMS sketch: dense signs, with the independence that its proofs use."""

import dataclasses

from fl_sketch.sketches import dense, hashing
import jax
import jax.numpy as jnp

_SIGNS = 31  # in a word of `hashing.kwise`


@dataclasses.dataclass(frozen=True)
class ams(dense.DenseSketch):
  r"""Sketch by a matrix of signs, :math:`R_{ij} = \pm 1 / \sqrt b`.

  The sketch of Alon, Matias and Szegedy (STOC 1996), Definition D.4 of Song et
  al., with b = `size`. Tables are f32[size]; a size below 1, or above d, raises
  ValueError. O(b d) operations: a reference for size up to about 10^3.

  Guarantees, proven: any four signs of a row, or of any two rows, are
  independent, as 31 rows are the bits of one word of `hashing.kwise`:
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1) / b) ||x||^2.
    coordinate-wise constant 2: the variance of <h, R^T R g> is (||g||^2
      ||h||^2 + <g, h>^2 - 2 sum_i g_i^2 h_i^2) / b.

  >>> op, x = ams(4), {'w': jnp.zeros(8).at[2].set(6.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> jnp.abs(table).tolist()
  [3.0, 3.0, 3.0, 3.0]
  """

  def alpha(self, d):
    return (d - 1) / self.size

  def tile(self, key, counter):
    groups = -(-self.size // _SIGNS)
    families = hashing.families(key, groups, 4, hashing.SIGN)
    words = jax.vmap(hashing.kwise, (None, 0))(counter, families)[:, None]
    plane = jnp.arange(1, 1 + _SIGNS, dtype=jnp.uint32)[None, :, None]
    shape = groups, _SIGNS, counter.size
    scale = jnp.full(shape, self.size**-0.5, jnp.float32)
    signs = hashing.flip(scale, words, plane)  # bit 31 is never set
    return signs.reshape(-1, counter.size)[: self.size]
