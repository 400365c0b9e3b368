"""Reads pfl-research's HDF5: /SPLIT/USER/COLUMN, and /metadata."""

from collections.abc import Callable, Iterator
import json
import pathlib
from typing import Any

from fl_sketch.data.natural import records
from fl_sketch.data.natural.records import TEST, TRAIN, Records
from fl_sketch.data.sources import DataError
import numpy as np

_SPARSE = 'labels_row', 'labels_col'


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads the users of /train, then those of /test or, without one, /val."""
  with records.hdf5(path) as file:
    held = next((x for x in ('test', 'val') if x in file), None)
    if 'train' not in file:
      raise DataError(f'{path} has {[*file]}, not /train.')
    for name, split in (('train', TRAIN), (held, TEST)):
      for user, group in (file[name] if name else {}).items():
        found = dict(group.items())
        dense = [k for k in found if not k.endswith(('_row', '_col'))]
        columns = {k: found[k] for k in dense if found[k].shape}
        columns |= _labels(found, file)
        yield from records.parts(user, split, columns, path)


def metadata(path: pathlib.Path, name: str, parse: Callable[[Any], Any]) -> Any:
  """Reads and parses one entry of the group /metadata of an HDF5 file."""
  with records.hdf5(path) as file:
    return parse(file[f'metadata/{name}'][()])


def _labels(columns, file) -> dict[str, np.ndarray]:
  """The labels of FLAIR, places of ones in uint8[samples, labels]."""
  if not {*_SPARSE} <= columns.keys():
    return {}
  mapping = json.loads(file['metadata/label_mapping'][()])
  ones = np.zeros((len(columns['image_ids']), len(mapping)), np.uint8)
  rows, labels = (columns[x][()] for x in _SPARSE)
  if rows.shape != labels.shape or (rows < 0).any() or (labels < 0).any():
    raise ValueError(f'places {rows} and {labels} of labels')
  ones[rows, labels] = 1
  return {'labels': ones}
