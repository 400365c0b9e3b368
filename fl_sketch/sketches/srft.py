"""Subsampled randomised Fourier transform, with complex tables."""

import dataclasses

from fl_sketch.sketches import base, fourier, hashing, signs
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class srft(base.SizedSketch):
  r"""Subsample a Fourier transform of coordinates with random signs.

  Definition D.3 of Song et al.: :math:`R = \sqrt{n / b}\, S F D` with `size` =
  b complex rows, D random signs, F unitary and S rows drawn without
  replacement; desketch is :math:`\Re(R^* y)`, n that of `fourier.split`. `dct`
  is its real form. Tables are c64[size]; a size below 1, or above d, raises
  ValueError.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    linear, desketch its adjoint under Re(conj(y) . R x); unbiased.
    orthogonal rows: R R^* = (n / b) I in every draw; exact at b = d = n.
    second moment: E||desketch(sketch(x))||^2 = (1 + alpha) ||x||^2 with alpha =
      n (n - b) / (2 b (n - 1)) at d = n even, (n - b) / (2 b) at d = n odd.
    coordinate-wise constant (n - b) / (n - 1), complex numbers counted once.
  """

  dtype = jnp.complex64

  def alpha(self, d):
    n, b = fourier.split(d, self.size)[0], self.size
    return (d - n % 2) * (n - b) / (2 * b * max(n - 1, 1))

  def coordinate_wise(self, d):
    n = fourier.split(d, self.size)[0]
    return (n - self.size) / max(n - 1, 1)

  def sketch_runs(self, key, runs, vector):
    n, parts = fourier.split(vector.size, self.size)
    x = signs.fill(key, runs, n, vector.dtype)
    rows = hashing.sample(key, self.size, n)
    return fourier.pick(x, rows, parts) / self.size**0.5

  def desketch_spans(self, key, table, spans, vector):
    n, parts = fourier.split(vector.size, self.size)
    values, rows = table / self.size**0.5, hashing.sample(key, self.size, n)
    return signs.read(key, fourier.place(values, rows, n, parts), spans)
