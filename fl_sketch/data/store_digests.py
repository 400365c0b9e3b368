"""Tells by their digests whether the arrays of a store are those written.

They may be huge: files with the times in checked.json are not read.
"""

from collections.abc import Iterable, Mapping
import json
import mmap
import pathlib
import warnings

from fl_sketch.data.sources import Arrays, DataError
from fl_sketch.utils import digests, files
import numpy as np


def of_array(x: np.ndarray, *, read: bool = False) -> str:
  """Returns the SHA-256 digest of an array's bytes; a store's has it on record.

  To `read` an array of a store compares it with its record.
  """
  if (recorded := _recorded(x)) is None:
    return digests.of_array(x)
  if read:
    _compare(x, recorded)
  return recorded


def check(folder: pathlib.Path, arrays: Arrays, recorded: Mapping[str, str]):
  """Compares arrays whose files have other times than those of checked.json.

  Memory-mapped arrays and recorded digests are by the names of files.
  """
  try:
    checked = dict(json.loads((folder / 'checked.json').read_text()))
  except (OSError, ValueError, TypeError):
    checked = {}  # it saves time, nothing else
  if (now := times(folder, arrays)) == checked:
    return
  for name, x in arrays.items():
    if now[name] != checked.get(name):
      _compare(x, recorded.get(name))
  try:
    files.replace(folder / 'checked.json', times(folder, arrays))
  except files.SaveError as error:
    warnings.warn(f'{error} Each start reads {folder} whole.', stacklevel=3)


def times(folder: pathlib.Path, names: Iterable[str]) -> dict[str, int]:
  """Times of the last change of the arrays' files: content of checked.json."""
  return {name: (folder / f'{name}.npy').stat().st_mtime_ns for name in names}


def _recorded(x) -> str | None:
  """The digest that an array had when it was written, if it is a store's."""
  if not isinstance(x, np.memmap) or not isinstance(x.base, mmap.mmap):
    return None  # not a whole file
  path = pathlib.Path(x.filename or '')
  about = path.with_name('store.json')
  if not about.exists():
    return None
  return json.loads(about.read_text())['sha256'].get(path.stem)


def _compare(x, recorded):
  if digests.of_array(x) != recorded:
    raise DataError(
      f'{x.filename} was changed after it was written: write the store again.'
    )
