"""Sketches written with NumPy, SciPy, scikit-learn and PyTorch.

Each draws a fresh matrix in every sketch, as a round does, and keeps it for the
desketch, which the operators of this package draw again. Where a library has
several implementations, the fastest known one is used.
"""

from collections.abc import Sequence
import importlib
import importlib.metadata
import importlib.util
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg
from sklearn import random_projection

from .contestants import Contestant, Runner, dense_entries

# To draw as many takes scikit-learn half a minute.
_NONZEROS = 2**24


def _signs(rng, shape):
  return 1 - 2 * rng.integers(2, size=shape, dtype=np.int8)


def _numpy_count_sketch(add):
  def make(x, b):
    def sketch(draw):
      rng = np.random.default_rng(draw)
      bucket = rng.integers(b, size=x.shape[1])
      sign = _signs(rng, x.shape[1])
      return np.stack([add(bucket, sign * row, b) for row in x]), (bucket, sign)

    def desketch(table, matrix):
      bucket, sign = matrix
      return np.take(table, bucket, axis=1) * sign[None]

    return Runner(sketch, desketch, b)

  return make


def _add_at(bucket, values, b):
  table = np.zeros(b, np.float32)
  np.add.at(table, bucket, values)
  return table


# The matrix that is kept is (buckets, signs).
numpy_add_at = _numpy_count_sketch(_add_at)
numpy_bincount = _numpy_count_sketch(
  lambda *args: np.bincount(*args).astype(np.float32)
)


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


def scipy_clarkson_woodruff(x: np.ndarray, b: int) -> Runner:
  """Count Sketch by SciPy, which keeps no matrix and so has no desketch."""
  columns = np.ascontiguousarray(x.T)

  def sketch(draw):
    rng = np.random.default_rng(draw)
    return scipy.linalg.clarkson_woodruff_transform(columns, b, rng).T, None

  return Runner(sketch, None, b)


def _dense(draw_matrix):
  def make(x, b):
    scale = np.float32(b**-0.5)

    def sketch(draw):
      matrix = draw_matrix(np.random.default_rng(draw), (b, x.shape[1]))
      return scale * (x @ matrix.T), matrix

    def desketch(table, matrix):
      return scale * (table @ matrix)

    return Runner(sketch, desketch, b)

  return make


numpy_normal = _dense(
  lambda rng, shape: rng.standard_normal(shape, dtype=np.float32)
)
numpy_signs = _dense(lambda rng, shape: _signs(rng, shape).astype(np.float32))


def _sklearn(projection):
  def make(x, b):
    def sketch(draw):
      fitted = projection(b, random_state=draw).fit(x)
      return fitted.transform(x), fitted.components_

    return Runner(sketch, lambda table, matrix: table @ matrix, b)

  return make


sklearn_sparse = _sklearn(random_projection.SparseRandomProjection)
sklearn_normal = _sklearn(random_projection.GaussianRandomProjection)


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


def numpy_fft(x: np.ndarray, b: int) -> Runner:
  """Subsampled unitary FFT by NumPy: signs and b / 2 complex rows."""
  d, size = x.shape[1], b // 2
  scale = np.float32(size**-0.5)

  def folded(rows):
    mirrored = rows > d // 2  # the transform at d - k is the conjugate
    return mirrored[None], np.where(mirrored, d - rows, rows)

  def sketch(draw):
    rng = np.random.default_rng(draw)
    sign, rows = _signs(rng, d), rng.choice(d, size, replace=False)
    mirrored, at = folded(rows)
    value = scale * np.fft.rfft(x * sign[None])[:, at]
    return np.where(mirrored, value.conj(), value), (sign, rows)

  def desketch(table, matrix):
    sign, rows = matrix
    mirrored, at = folded(rows)
    value = scale * np.where(mirrored, table.conj(), table) / 2
    alone = (rows == 0) | (2 * rows == d)
    value = np.where(alone[None], 2 * value.real, value)
    half = np.zeros((len(x), d // 2 + 1), np.complex64)
    for spectrum, values in zip(half, value, strict=True):
      np.add.at(spectrum, at, values)
    return np.fft.irfft(half, d, norm='forward') * sign[None]

  return Runner(sketch, desketch, 2 * size)


def _many_nonzeros(d, b):
  # The density that scikit-learn takes from Li, Hastie and Church (KDD 2006).
  return f'b √d > {_NONZEROS:,}' if b * d**0.5 > _NONZEROS else ''


def _no_torch(d, b):
  return '' if importlib.util.find_spec('torch') else 'PyTorch is not installed'


LIBRARIES = {
  'numpy add.at': Contestant('count sketch', numpy_add_at),
  'numpy bincount': Contestant('count sketch', numpy_bincount),
  'scipy clarkson_woodruff': Contestant(
    'count sketch', scipy_clarkson_woodruff
  ),
  'torch index_add_': Contestant('count sketch', torch_index_add, _no_torch),
  'numpy normal': Contestant('normal matrix', numpy_normal, dense_entries),
  'sklearn Gaussian': Contestant(
    'normal matrix', sklearn_normal, dense_entries
  ),
  'numpy signs': Contestant('sign matrix', numpy_signs, dense_entries),
  'sklearn SparseRandom': Contestant(
    'sparse embedding', sklearn_sparse, _many_nonzeros
  ),
  'numpy choice': Contestant('sampling', numpy_choice),
  'scipy dct': Contestant('cosine transform', scipy_dct),
  'numpy rfft': Contestant('Fourier transform', numpy_fft),
}


def versions(names: Sequence[str]) -> dict[str, str]:
  """The versions of installed distributions."""
  installed = {}
  for name in names:
    try:
      installed[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return installed
