"""Sketches written with NumPy, SciPy and scikit-learn.

Each draws a fresh matrix in every sketch, as a round does, and keeps it for the
desketch, which the operators of this package draw again. Each kind of sketch
has the fastest implementation that is known.
"""

from typing import Any

import numpy as np
import scipy.fft
from sklearn import random_projection

from .contestants import DENSE, Contestant, Runner


def _signs(rng, shape):
  return 1 - 2 * rng.integers(2, size=shape, dtype=np.int8)


def numpy_bincount(x: np.ndarray, b: int) -> Runner:
  """Count Sketch by NumPy; the matrix that is kept is (buckets, signs)."""

  def sketch(draw):
    rng = np.random.default_rng(draw)
    bucket = rng.integers(b, size=x.shape[1])
    sign = _signs(rng, x.shape[1])
    table = [np.bincount(bucket, sign * row, b) for row in x]
    return np.array(table, np.float32), (bucket, sign)

  def desketch(table, matrix):
    bucket, sign = matrix
    return np.take(table, bucket, axis=1) * sign[None]

  return Runner(sketch, desketch)


def numpy_normal(x: np.ndarray, b: int) -> Runner:
  """A normal matrix by NumPy, which is kept."""
  scale = np.float32(b**-0.5)

  def sketch(draw):
    rng = np.random.default_rng(draw)
    matrix = rng.standard_normal((b, x.shape[1]), dtype=np.float32)
    return scale * (x @ matrix.T), matrix

  return Runner(sketch, lambda table, matrix: scale * (table @ matrix))


def sklearn_sparse(x: np.ndarray, b: int) -> Runner:
  """A sparse random projection by scikit-learn."""

  def sketch(draw):
    size: Any = b  # annotated as its default, a text
    projection = random_projection.SparseRandomProjection(
      size, random_state=draw
    )
    fitted = projection.fit(x)
    return fitted.transform(x), fitted.components_

  return Runner(sketch, lambda table, matrix: table @ matrix)


def numpy_choice(x: np.ndarray, b: int) -> Runner:
  """Uniform sampling of b of d coordinates; the matrix is their indices."""
  d = x.shape[1]
  scale = np.float32((d / b) ** 0.5)

  def sketch(draw):
    rows = np.random.default_rng(draw).choice(d, b, replace=False)
    return scale * x[:, rows], rows

  def desketch(table, rows):
    # Pages of np.zeros are allocated at the first read, which is not timed.
    out = np.empty(x.shape, np.float32)
    out.fill(0)
    out[:, rows] = scale * table
    return out

  return Runner(sketch, desketch)


def scipy_dct(x: np.ndarray, b: int) -> Runner:
  """Subsampled orthonormal DCT-II by SciPy; the matrix is (signs, rows)."""
  d = x.shape[1]
  scale = np.float32((d / b) ** 0.5)
  options: dict[str, Any] = dict(norm='ortho', overwrite_x=True, workers=-1)

  def sketch(draw):
    rng = np.random.default_rng(draw)
    sign, rows = _signs(rng, d), rng.choice(d, b, replace=False)
    value = np.asarray(scipy.fft.dct(x * sign[None], **options))
    return scale * value[:, rows], (sign, rows)

  def desketch(table, matrix):
    sign, rows = matrix
    spread = np.zeros(x.shape, np.float32)
    spread[:, rows] = scale * table
    return scipy.fft.idct(spread, **options) * sign[None]

  return Runner(sketch, desketch)


LIBRARIES = {
  'numpy bincount': Contestant('count sketch', numpy_bincount),
  'numpy normal': Contestant('normal matrix', numpy_normal, DENSE),
  # The density that scikit-learn takes from Li, Hastie and Church (KDD 2006).
  'sklearn SparseRandom': Contestant(
    'sparse embedding', sklearn_sparse, lambda d, b: b * d**0.5
  ),
  'numpy choice': Contestant('sampling', numpy_choice),
  'scipy dct': Contestant('cosine transform', scipy_dct),
}
