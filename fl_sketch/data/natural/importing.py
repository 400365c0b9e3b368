"""Import data sets with natural clients into stores."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import functools
import inspect
import pathlib
import tempfile
from typing import Any

from fl_sketch.data import store
from fl_sketch.data.natural import readers, tasks
from fl_sketch.data.natural.readers import TEST, TRAIN
from fl_sketch.data.sources import Arrays, DataError, PathLike
from fl_sketch.utils import checks, markdown
import numpy as np
import tqdm

_ROWS = 2**15  # of a chunk, about
# Columns of clients in tables.
_COLUMNS = {'femnist': 'writer_id', 'shakespeare': 'character_id'}


def _layouts(path: pathlib.Path, kind: str) -> dict[str, pathlib.Path]:
  files = sorted(path.iterdir()) if path.is_dir() else [path]
  digits = kind == 'femnist_digits'  # they lie beside all of EMNIST
  layouts = {}
  for file in files:
    if file.name.endswith('_train.h5') and ('digits' in file.stem) == digits:
      layouts['tff'] = file
    if file.suffix == '.txt':
      layouts['plays'] = file
    if file.suffix in readers.SUFFIXES:
      layouts['table'] = path
  if [*path.glob('train/*.json')]:
    layouts['leaf'] = path
  return layouts


def import_data(
  kind: str,
  path: PathLike,
  to: PathLike,
  *,
  test_share: float | None = None,
  **options: Any,
) -> store.Store:
  """Write the clients of published files to a store; show a bar of progress.

  `path` is a file or folder, of a layout of the kind, one of `tasks.KINDS`.
  Where files have no test examples, each client holds out its last samples, a
  share `test_share` of them, rounded, and at most all but one. Options are
  `client` and `split`, columns of a table, and those of the kind's task.

  Raises DataError for damaged files or another layout, ValueError for unknown
  options, OSError if `to` exists or cannot be written.
  """
  checks.choice('kind', kind, tuple(tasks.KINDS))
  path = pathlib.Path(path).expanduser()
  options = {name: x for name, x in options.items() if x is not None}
  layouts = _layouts(path, kind)
  layout = next((x for x in tasks.KINDS[kind] if x in layouts), None)
  if not path.exists():
    raise DataError(f'{path} does not exist; name a file or folder.')
  if layout is None:
    expected = [*tasks.KINDS[kind]]
    raise DataError(f'{path} has no files of {kind=} in layout {expected}.')
  read = getattr(readers, layout)
  if layout == 'table':
    columns = {k: options.pop(k) for k in ('client', 'split') if k in options}
    columns.setdefault('client', _COLUMNS.get(kind))
    if columns['client'] is None:
      raise ValueError('A table requires client; set the column of clients.')
    read = functools.partial(read, **columns)
  if kind == 'stackoverflow':
    options['path'] = layouts[layout].with_name('stackoverflow.word_count')
  make_task = tasks.KINDS[kind][layout]
  if kind == 'table' and 'text' in options:
    make_task = functools.partial(tasks.characters, [options.pop('text')])
  if odd := sorted(options.keys() - inspect.signature(make_task).parameters):
    raise ValueError(f'{", ".join(odd)} has no effect for {kind=}; remove it.')
  task = make_task(**options)

  def samples():
    for record in read(layouts[layout]):
      # Its test clients are others, of the same names.
      nobody = kind == 'cifar100' and record.split == TEST
      with readers.reading(f'Client {record.client!r} of {path}'):
        arrays = task.arrays(record.columns)
      yield record.split, None if nobody else record.client, arrays

  return _write(samples(), to, task.num_classes, test_share, task.tokenizer)


def import_clients(
  train: Iterable[tuple[str | int, Arrays]],
  to: PathLike,
  num_classes: int | None,
  *,
  test: Iterable[tuple[str | int | None, Arrays]] = (),
  test_share: float | None = None,
  tokenizer: str | None = None,
) -> store.Store:
  """Write clients that an iterator yields to a store.

  `train` yields (client, arrays), leaves [samples, ...], in any order, a client
  once or more; so does `test`, of held-out samples, with None for nobody's.
  Other arguments and errors are those of `import_data` and `store.write`.

  >>> with tempfile.TemporaryDirectory() as folder:
  ...   rows = [(7, {'x': np.ones((3, 2)), 'y': np.array([0, 1, 0])})]
  ...   data = import_clients(rows, f'{folder}/to', 2, test_share=0.4)
  ...   data.ids.tolist(), data.partition.sizes.tolist(), len(data.test['y'])
  ([b'7'], [2], 1)
  """

  def samples():
    for split, pairs in ((TRAIN, train), (TEST, test)):
      for client, arrays in pairs:
        name = None if client is None else str(client)
        yield split, name, {k: np.asarray(x) for k, x in arrays.items()}

  return _write(samples(), to, num_classes, test_share, tokenizer)


def _write(samples, to, num_classes, test_share, tokenizer) -> store.Store:
  if test_share is not None:
    checks.fraction('test_share', test_share)
  target = pathlib.Path(to).expanduser()
  if target.exists():
    raise FileExistsError(f'{target} exists; name another folder.')
  target.parent.mkdir(parents=True, exist_ok=True)
  place = {'prefix': f'{target.name}.', 'dir': target.parent}
  with tempfile.TemporaryDirectory(**place) as folder:
    train, test = _group(samples, pathlib.Path(folder))
    if train is None:
      raise DataError('No client has training samples.')
    if (test is None) != (test_share is not None):
      owned = 'no' if test is None else 'own'
      raise DataError(f'There are {owned} test examples with {test_share=}.')
    of_clients = test is None or test.sizes[train.sizes > 0].any()
    chunks = train.chunks(test if of_clients else None)
    if test_share is not None:
      chunks = (_hold_out(chunk, test_share) for chunk in chunks)
    public = test.arrays if test is not None and not of_clients else None
    store.write(target, chunks, public, num_classes, tokenizer)
  return store.open(target)


def _group(samples, folder) -> 'list[_Grouped | None]':
  """Group the samples of each split, which come in any order, in files."""
  numbers: dict[str | None, int] = {}  # of clients, by name
  splits: dict[str, store.Columns] = {}
  bar = tqdm.tqdm(samples, 'reading', unit='record', disable=None)
  with contextlib.ExitStack() as files:
    for split, client, arrays in bar:
      number = numbers.setdefault(client, len(numbers))
      size = len(next(iter(arrays.values())))
      arrays = {'owner': np.full(size, number, np.int32), **arrays}
      if split not in splits:
        splits[split] = store.Columns(files, folder, f'{split}_', arrays)
      try:
        splits[split].append(arrays, [size], None, [client])
      except ValueError as error:
        raise ValueError(f'Client {client!r}: {error}') from error
    loaded = {split: x.finish() for split, x in splits.items()}
  names = [*numbers]
  return [
    _Grouped(loaded[x], names) if x in loaded else None for x in (TRAIN, TEST)
  ]


class _Grouped:
  """Samples of one split, client by client; memory-mapped."""

  def __init__(self, arrays: Arrays, names: list):
    owner = arrays.pop('owner')
    self.arrays, self._names = arrays, names
    self.sizes = np.bincount(owner, minlength=len(names))  # of each client
    self._ends = np.cumsum(self.sizes)
    # Most files have one client after another: nothing is to be sorted.
    ordered = (owner[1:] >= owner[:-1]).all()
    self._order = None if ordered else np.argsort(owner, kind='stable')

  def take(self, clients: np.ndarray) -> Arrays:
    """Return the samples of these clients, leaves [sum of sizes, ...]."""
    ends, sizes = self._ends[clients], self.sizes[clients]
    places = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
    if self._order is not None:
      places = self._order[places]
    return {name: np.asarray(x[places]) for name, x in self.arrays.items()}

  def chunks(self, held_out: '_Grouped | None') -> Iterator[store.Chunk]:
    """Yield chunks of all clients that have samples here."""
    trained = np.flatnonzero(self.sizes)
    chunk = self._ends[trained] // _ROWS
    for some in np.split(trained, np.flatnonzero(np.diff(chunk)) + 1):
      held = None, None
      if held_out is not None:
        held = held_out.sizes[some], held_out.take(some)
      ids = [self._names[i] for i in some]
      yield store.Chunk(self.sizes[some], self.take(some), *held, ids)


def _hold_out(chunk: store.Chunk, share: float) -> store.Chunk:
  sizes = chunk.sizes
  counts = np.minimum(np.rint(share * sizes).astype(np.int64), sizes - 1)
  ends = np.repeat(np.cumsum(sizes), sizes)
  held = ends - np.arange(sizes.sum()) <= np.repeat(counts, sizes)
  train = {name: x[~held] for name, x in chunk.train.items()}
  held_out = {name: x[held] for name, x in chunk.train.items()}
  return store.Chunk(sizes - counts, train, counts, held_out, chunk.ids)


def sizes_table(sizes: Mapping[str, np.ndarray]) -> str:
  """Format int[clients] of each part of the data as a Markdown table.

  >>> print(sizes_table({'training': np.array([1, 3])}), end='')
  | samples | clients | in all | mean | least | median | 9 of 10 | most |
  | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
  | training | 2 | 4 | 2.0 | 1 | 2 | 3 | 3 |
  """
  rows, quantiles = [], {'least': 0, 'median': 0.5, '9 of 10': 0.9, 'most': 1}
  for name, counts in sizes.items():
    ends = np.quantile(counts, list(quantiles.values()))
    means = f'{len(counts):,}', f'{counts.sum():,}', f'{counts.mean():,.1f}'
    rows.append([name, *means, *(f'{end:,.0f}' for end in ends)])
  head = ['samples', 'clients', 'in all', 'mean', *quantiles]
  return markdown.table(head, rows, left=1)
