"""Read clients' samples: LEAF, TensorFlow Federated, tables, plays.

LEAF (arXiv:1812.01097) has JSON, {users, num_samples, user_data}, in train/ and
test/. TensorFlow Federated has HDF5, /examples/CLIENT/COLUMN, a file for each
split. Tables, Parquet or CSV, have a column of clients. In a play the name of
who speaks stands in a line of its own.
"""

from collections.abc import Iterator, Mapping
import contextlib
import itertools
import json
import pathlib
import re
from typing import Any, NamedTuple

from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras
import numpy as np

TRAIN, TEST = 'train', 'test'
_ROWS = 4096  # of a table in memory
SUFFIXES = '.parquet', '.csv', '.tsv'
_SPLITS = {'train': TRAIN} | dict.fromkeys(
  ('test', 'validation', 'valid', 'val'), TEST
)
_SPEAKER = re.compile(r'[A-Z][^:\n]*:')
_HELD_OUT = 0.1  # of a speaker's letters, the last ones
_LEAST = 1000  # letters of a speaker who is a client


class Record(NamedTuple):
  """Samples of one client, of one split; a client may have several records."""

  client: str | None  # its name in the file; None: nobody's, of the test
  split: str  # `TRAIN` or `TEST`
  columns: Mapping[str, Any]  # the samples by name, all of one length


@contextlib.contextmanager
def reading(place: pathlib.Path | str) -> Iterator[None]:
  """Raise a reader's error as a DataError that names the place."""
  try:
    yield
  except (DataError, ImportError, MemoryError):
    raise
  except Exception as error:  # readers raise errors of all types
    raise DataError(f'{place} cannot be read: {error!r}.') from error


def leaf(path: pathlib.Path) -> Iterator[Record]:
  """Read PATH/train/*.json and PATH/test/*.json, in the order of names."""
  for split in TRAIN, TEST:
    for file in sorted((path / split).glob('*.json')):
      with reading(file):
        content = json.loads(file.read_text(encoding='utf-8'))
        for user, data in content['user_data'].items():
          if data['y']:
            yield Record(user, split, data)


def tff(path: pathlib.Path) -> Iterator[Record]:
  """Read NAME_train.h5, then NAME_test.h5 or NAME_held_out.h5 beside it."""
  with extras.needed('natural'):
    import h5py
  files = [(path, TRAIN)]
  for name in '_held_out.h5', '_test.h5':
    test = path.with_name(path.name.replace('_train.h5', name))
    if test.exists():
      files[1:] = [(test, TEST)]
  for file, split in files:
    with reading(file), h5py.File(file, 'r') as content:
      clients: Any = content['examples']
      for client, group in clients.items():
        columns = {name: x[()] for name, x in group.items()}
        if max(map(len, columns.values())):
          yield Record(client, split, columns)


def table(
  path: pathlib.Path, client: str, split: str | None = None
) -> Iterator[Record]:
  """Read a table, or the tables of a folder, in a stream.

  Of a folder, files whose names begin with test or val are held out. `client`
  and `split` are columns; splits are train, test, val, valid or validation.
  """
  with extras.needed('natural'):
    import pyarrow as pa
    from pyarrow import csv, dataset
  texts = csv.ConvertOptions(column_types={client: pa.string()})  # as 007
  of = lambda delimiter: dataset.CsvFileFormat(
    csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    convert_options=texts,
  )
  formats = {'.parquet': 'parquet', '.csv': of(','), '.tsv': of('\t')}
  for file, split_of_file in _files(path):
    with reading(file):
      content = dataset.dataset(file, format=formats[file.suffix])
      for batch in content.to_batches(batch_size=_ROWS):
        columns = batch.to_pydict()
        owners = columns.pop(client)
        splits = [split_of_file] * len(owners)
        if split is not None:
          splits = [_SPLITS[str(x)] for x in columns.pop(split)]
        yield from _runs(owners, splits, columns)


def _files(path) -> list[tuple[pathlib.Path, str]]:
  if path.is_file():
    return [(path, TRAIN)]
  tables = [x for x in sorted(path.iterdir()) if x.suffix in SUFFIXES]
  held_out = [x for x in tables if x.name.startswith(('test', 'val'))]
  train = [(file, TRAIN) for file in tables if file not in held_out]
  return train + [(file, TEST) for file in held_out]


def _runs(owners, splits, columns) -> Iterator[Record]:
  start = 0
  for (owner, split), run in itertools.groupby(
    zip(owners, splits, strict=True)
  ):
    end = start + len([*run])
    if owner is None or owner == '':
      raise ValueError('rows without a client')
    owner = owner.decode() if isinstance(owner, bytes) else str(owner)
    some = {name: x[start:end] for name, x in columns.items()}
    yield Record(owner, split, some)
    start = end


def plays(path: pathlib.Path) -> Iterator[Record]:
  """Read the speeches of each speaker, in the order of the play.

  Clients speak at least 1,000 letters; the last tenth of each is the test.
  """
  file = path / 'input.txt' if path.is_dir() else path
  with reading(file):
    text = file.read_text(encoding='utf-8')
  spoken: dict[str, list[str]] = {}
  for block in text.split('\n\n'):
    name, _, speech = block.strip('\n').partition('\n')
    if _SPEAKER.fullmatch(name) and speech:
      spoken.setdefault(name[:-1], []).append(speech)
  for name, speeches in spoken.items():
    ends = np.cumsum([len(speech) for speech in speeches])
    if ends[-1] >= _LEAST:
      cut = max(1, int(np.sum(ends <= (1 - _HELD_OUT) * ends[-1])))
      yield Record(name, TRAIN, {'text': speeches[:cut]})
      if speeches[cut:]:
        yield Record(name, TEST, {'text': speeches[cut:]})
