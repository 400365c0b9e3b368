"""Subsampled randomised cosine transform: the real Fourier sketch."""

import dataclasses

from fl_sketch.sketches import base, fourier, hashing, signs
from jax import lax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class dct(base.SizedSketch):
  r"""Subsample a discrete cosine transform of coordinates with random signs.

  :math:`R = \sqrt{n / b}\, S C D` with b = `size`, D random signs, C the
  orthonormal DCT-II and S rows drawn without replacement. C takes coordinates
  in the order of `fourier` after 0, n - 1, 1, n - 2, ..., in which it is a real
  Fourier transform (Makhoul, IEEE ASSP 1980). n is that of `fourier.split`: d
  for d <= 4096. Tables are f32[size]; a size below 1, or above d, raises
  ValueError.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    orthogonal rows: R R^T = (n / b) I in every draw; exact at b = d = n.
    second moment: E||desketch(sketch(x))||^2 <= (1 + d / b - d / n) ||x||^2,
      with equality at d = n.
    coordinate-wise constant 2 (n - b) / (n - 1).
  """

  by_lanes = True

  def alpha(self, d):
    return d / self.size - d / self._padded(d)

  def coordinate_wise(self, d):
    n = self._padded(d)
    return 2 * (n - self.size) / max(n - 1, 1)

  def _padded(self, d):
    return fourier.split(d, self.size)[0]

  def _phases(self, rows, n, dtype):
    """exp(i pi k / 2n) / norm of row k, as cosine and sine."""
    angle = (np.pi / 2 / n) * rows.astype(dtype)
    scale = jnp.where(rows == 0, 1.0, 2.0**0.5).astype(dtype) / self.size**0.5
    return scale * lax.complex(jnp.cos(angle), jnp.sin(angle))

  def sketch_runs(self, key, runs, vector):
    n, parts = fourier.split(vector.size, self.size)
    rows = hashing.sample(key, self.size, n)
    x = signs.fill(key, runs, n, vector.dtype)
    phase = self._phases(rows, n, vector.dtype)
    return (phase.conj() * fourier.pick(x, rows, parts)).real

  def desketch_spans(self, key, table, spans, vector):
    n, parts = fourier.split(vector.size, self.size)
    rows = hashing.sample(key, self.size, n)
    values = self._phases(rows, n, table.dtype) * table
    return signs.read(key, fourier.place(values, rows, n, parts), spans)
