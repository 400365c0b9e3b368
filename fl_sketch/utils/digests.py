"""SHA-256 digests of arrays, and of the package's own source files."""

import functools
import hashlib
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]  # of the package


def of_text(text: str) -> str:
  """Return the digest of a text, 64 hexadecimal digits."""
  return hashlib.sha256(text.encode()).hexdigest()


def of_array(x: np.ndarray) -> str:
  """Return the digest of an array's bytes, in the order of its indices.

  >>> of_array(np.array([[1, 2]])) == of_array(np.array([1, 2]))
  True
  """
  raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
  return hashlib.sha256(raw.data).hexdigest()


@functools.cache
def of_source() -> str:
  """Return the digest of the names and the text of fl_sketch's modules."""
  digest = hashlib.sha256()
  for path in sorted(ROOT.rglob('*.py')):
    digest.update(f'{path.relative_to(ROOT).as_posix()}\n'.encode())
    digest.update(hashlib.sha256(path.read_bytes()).digest())
  return digest.hexdigest()
