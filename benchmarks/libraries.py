"""Sketches written with NumPy, SciPy, scikit-learn and PyTorch.

Each draws a fresh matrix in every sketch, as a round does, and keeps it for the
desketch, which the operators of this package draw again. Each kind of sketch
has the fastest implementation that is known.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
from typing import Any

import numpy as np
import scipy.fft
from sklearn import random_projection

from .contestants import Contestant, Runner, dense_entries

# To draw as many takes scikit-learn half a minute.
_NONZEROS = 2**24


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

  return Runner(sketch, desketch, b)


def torch_index_add(x: np.ndarray, b: int) -> Runner:
  """Count Sketch by PyTorch's index_add on the CPU, hashes of torch.randint."""
  torch = importlib.import_module('torch')
  rows = torch.from_numpy(x)

  def sketch(draw):
    generator = torch.Generator().manual_seed(draw)
    draw = lambda high, dtype: torch.randint(
      high, x.shape[1:], generator=generator, dtype=dtype
    )
    bucket, sign = draw(b, torch.int32), 1.0 - 2 * draw(2, torch.int8)
    # One by one: index_add_ along the last of two axes is far slower.
    table = [torch.zeros(b).index_add_(0, bucket, row * sign) for row in rows]
    return torch.stack(table), (bucket, sign)

  def desketch(table, matrix):
    bucket, sign = matrix
    return torch.index_select(table, 1, bucket) * sign

  return Runner(sketch, desketch, b)


def numpy_normal(x: np.ndarray, b: int) -> Runner:
  """A normal matrix by NumPy, which is kept."""
  scale = np.float32(b**-0.5)

  def sketch(draw):
    rng = np.random.default_rng(draw)
    matrix = rng.standard_normal((b, x.shape[1]), dtype=np.float32)
    return scale * (x @ matrix.T), matrix

  return Runner(sketch, lambda table, matrix: scale * (table @ matrix), b)


def sklearn_sparse(x: np.ndarray, b: int) -> Runner:
  """A sparse random projection by scikit-learn."""

  def sketch(draw):
    size: Any = b  # annotated as its default, a text
    projection = random_projection.SparseRandomProjection(
      size, random_state=draw
    )
    fitted = projection.fit(x)
    return fitted.transform(x), fitted.components_

  return Runner(sketch, lambda table, matrix: table @ matrix, b)


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

  return Runner(sketch, desketch, b)


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

  return Runner(sketch, desketch, b)


def _many_nonzeros(d, b):
  # The density that scikit-learn takes from Li, Hastie and Church (KDD 2006).
  return f'b √d > {_NONZEROS:,}' if b * d**0.5 > _NONZEROS else ''


def _no_torch(d, b):
  return '' if importlib.util.find_spec('torch') else 'PyTorch is not installed'


LIBRARIES = {
  'numpy bincount': Contestant('count sketch', numpy_bincount),
  'torch index_add_': Contestant('count sketch', torch_index_add, _no_torch),
  'numpy normal': Contestant('normal matrix', numpy_normal, dense_entries),
  'sklearn SparseRandom': Contestant(
    'sparse embedding', sklearn_sparse, _many_nonzeros
  ),
  'numpy choice': Contestant('sampling', numpy_choice),
  'scipy dct': Contestant('cosine transform', scipy_dct),
}


def versions() -> dict[str, str]:
  """The versions of those that are installed."""
  installed = {}
  for name in ('scipy', 'scikit-learn', 'torch'):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      installed[name] = importlib.metadata.version(name)
  return installed
