"""Subsampled randomised Fourier transform, with complex tables."""

from fl_sketch.sketches import base, fourier, hashing, signs
import jax.numpy as jnp


def srft(size: int) -> base.Sketch:
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
  base.check_positive(size=size)

  def sketch(key, runs, vector):
    n, parts = fourier.split(vector.size, size)
    x = signs.fill(key, runs, n, vector.dtype)
    return fourier.pick(x, hashing.sample(key, size, n), parts) / size**0.5

  def desketch(key, table, spans, vector):
    n, parts = fourier.split(vector.size, size)
    x = fourier.place(table / size**0.5, hashing.sample(key, size, n), n, parts)
    return signs.read(key, x, spans)

  constant = signs.of_padded(lambda d: fourier.split(d, size)[0])
  stated = base.Properties(
    'srft', floats=lambda like: 2 * size,
    alpha=constant(
      lambda d, n: (d - n % 2) * (n - size) / (2 * size * max(n - 1, 1))
    ),
    coordinate_wise=constant(lambda d, n: (n - size) / max(n - 1, 1)),
  )  # fmt: skip
  return base.from_runs(stated, size, sketch, desketch, jnp.complex64)
