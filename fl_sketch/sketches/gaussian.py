"""Gaussian sketch: independent normal entries, as theory assumes."""

import dataclasses

from fl_sketch.sketches import dense, hashing
import jax


@dataclasses.dataclass(frozen=True)
class gaussian(dense.DenseSketch):
  r"""Sketch by independent normal entries, :math:`R_{ij} \sim N(0, 1 / b)`.

  Definition D.2 of Song et al., with b = `size`. An entry is the normal
  quantile of 23 hashed bits, up to 5.3 standard deviations. Tables are
  f32[size]; a size below 1, or above d, raises ValueError. O(b d) operations: a
  reference for size up to about 10^3.

  Guarantees, for words that are independent (`hashing.word`):
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d + 1) / b) ||x||^2.
    coordinate-wise constant 2: the variance of <h, R^T R g> is
      (||g||^2 ||h||^2 + <g, h>^2) / b.
  """

  def alpha(self, d):
    return (d + 1) / self.size

  def tile(self, key, counter):
    seeds = hashing.seeds(key, self.size, hashing.ENTRY)
    words = jax.vmap(hashing.word, (None, 0))(counter, seeds)
    return hashing.normal(words) * (1 / self.size) ** 0.5
