"""Digests of arrays and of the package's own source; checksums of files."""

import functools
import hashlib
import json
import pathlib
import zlib

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]  # of the package


def of_text(text: str) -> str:
  """Return the digest of a text, 64 hexadecimal digits."""
  return hashlib.sha256(text.encode()).hexdigest()


def of_array(x: np.ndarray) -> str:
  """Return the digest of an array's bytes, in the order of its indices."""
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


def seal(folder: pathlib.Path):
  """Write the checksum of each file in a folder to its digests.json."""
  unseal(folder)
  partial = folder / 'digests.partial'
  paths = [p for p in folder.rglob('*') if p.is_file() and p != partial]
  digests = {str(path.relative_to(folder)): _of_file(path) for path in paths}
  partial.write_text(json.dumps(digests, indent=2))
  partial.rename(folder / 'digests.json')


def unseal(folder: pathlib.Path):
  """Remove digests.json before files of the folder change."""
  (folder / 'digests.json').unlink(missing_ok=True)


def check_seal(folder: pathlib.Path):
  """Raise ValueError if a file differs from its checksum in digests.json."""
  if (path := folder / 'digests.json').exists():
    for name, digest in json.loads(path.read_text()).items():
      if _of_file(folder / name) != digest:
        raise ValueError(f'{name} is not as it was written')


def _of_file(path: pathlib.Path) -> int:
  """Return the CRC-32 of a file: damage is no attack."""
  digest = 0
  with path.open('rb') as file:
    while part := file.read(2**20):
      digest = zlib.crc32(part, digest)
  return digest
