"""Subsampled randomised cosine transform: the real Fourier sketch."""

from fl_sketch.sketches import base, fourier, hashing, signs
from jax import lax
import jax.numpy as jnp
import numpy as np


def dct(size: int) -> base.Sketch:
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
  base.check_positive(size=size)

  def phases(rows, n, dtype):
    """exp(i pi k / 2n) / norm of row k, as cosine and sine."""
    angle = (np.pi / 2 / n) * rows.astype(dtype)
    scale = jnp.where(rows == 0, 1.0, 2.0**0.5).astype(dtype) / size**0.5
    return scale * lax.complex(jnp.cos(angle), jnp.sin(angle))

  def sketch(key, runs, vector):
    n, parts = fourier.split(vector.size, size)
    rows = hashing.sample(key, size, n)
    x = signs.fill(key, runs, n, vector.dtype)
    phase = phases(rows, n, vector.dtype)
    return (phase.conj() * fourier.pick(x, rows, parts)).real

  def desketch(key, table, spans, vector):
    n, parts = fourier.split(vector.size, size)
    rows = hashing.sample(key, size, n)
    values = phases(rows, n, table.dtype) * table
    return signs.read(key, fourier.place(values, rows, n, parts), spans)

  constant = signs.of_padded(lambda d: fourier.split(d, size)[0])
  stated = base.Properties(
    'dct', floats=lambda like: size,
    alpha=constant(lambda d, n: d / size - d / n),
    coordinate_wise=constant(lambda d, n: 2 * (n - size) / max(n - 1, 1)),
  )  # fmt: skip
  return base.from_runs(stated, size, sketch, desketch, by_lanes=True)
