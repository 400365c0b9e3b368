"""Reads pfl-research's HDF5: /SPLIT/USER/COLUMN, and /metadata."""

from collections.abc import Iterator
import json
import pathlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras
import numpy as np

_SPLITS = {'train': TRAIN, 'val': TEST, 'test': TEST}
_SPARSE = 'labels_row', 'labels_col'
_AT_ONCE = 256  # samples of a client in one record


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads the users of /train, then what they have in /val or /test.

  Raises:
    DataError: the file is not of this layout.
  """
  with extras.needed('natural'):
    import h5py

  with reading(path, KeyError, RuntimeError), h5py.File(path, 'r') as file:
    splits = [x for x in _SPLITS if x in file]
    if 'train' not in splits:
      raise DataError(f'Expected /train in {path}, found {[*file]}.')
    for name in splits:
      for user, group in file[name].items():
        labels = _labels(group, file)
        columns = {
          k: x for k, x in group.items() if k not in _SPARSE and x.shape
        }
        columns |= labels
        lengths = {k: len(x) for k, x in columns.items()}
        if len({*lengths.values()}) != 1:
          raise DataError(
            f'Expected columns of one length of user {user!r} in {path}, got '
            f'{lengths}.'
          )
        for first in range(0, max(lengths.values()), _AT_ONCE):
          part = slice(first, first + _AT_ONCE)
          some = {k: x[part] for k, x in columns.items()}
          yield Records(user, _SPLITS[name], some)


def _labels(group, file) -> dict[str, np.ndarray]:
  """The labels of FLAIR, places of ones in uint8[samples, labels]."""
  if not {*_SPARSE} <= {*group}:
    return {}
  mapping = json.loads(file['metadata/label_mapping'][()])
  ones = np.zeros((len(group['image_ids']), len(mapping)), np.uint8)
  ones[group['labels_row'][()], group['labels_col'][()]] = 1
  return {'labels': ones}
