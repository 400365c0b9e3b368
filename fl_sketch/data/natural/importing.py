"""Import data sets with natural clients into stores."""

from collections.abc import Callable, Iterable
import functools
import pathlib
import tempfile
from typing import Any, NamedTuple

from fl_sketch.data import store
from fl_sketch.data.natural import grouping, readers, tasks
from fl_sketch.data.natural.readers import TEST, TRAIN
from fl_sketch.data.sources import Arrays, DataError, PathLike
from fl_sketch.utils import checks
import numpy as np
import tqdm

_WORDS = 10_000  # of Stack Overflow's vocabulary


class Kind(NamedTuple):
  """A federated data set: its task, and the file layouts it comes in."""

  # (layout, path, options) -> task; pops the options that it takes.
  task: Callable[[str, pathlib.Path, dict[str, Any]], tasks.NaturalTask]
  layouts: tuple[str, ...]  # in which it is published
  client: str | None = None  # the column of clients in tables


def _characters(layout, path, options, *names):
  return tasks.characters(*names, length=options.pop('length', 80))


def _shakespeare(layout, path, options):
  if layout == 'tff':
    return _characters(layout, path, options)
  return tasks.next_character()


def _stackoverflow(layout, path, options):
  path = path.with_name('stackoverflow.word_count')
  with readers.reading(path):
    words = tasks.word_counts(path, options.pop('vocabulary', _WORDS))
  return tasks.next_words(words, length=options.pop('length', 20))


def _table(layout, path, options):
  text = options.pop('text', None)
  if text is not None:
    return _characters(layout, path, options, (text,))
  if 'classes' not in options:
    raise ValueError("kind='table' requires classes or text; set one of them.")
  names = (options.pop('inputs', 'image'),), (options.pop('label', 'label'),)
  size = options.pop('size', None)
  shape = None if size is None else (size, size)
  classes = options.pop('classes')
  return tasks.images(*names, num_classes=classes, shape=shape, resize=True)


def _femnist(classes, *_):
  return tasks.images(num_classes=classes, shape=(28, 28, 1), invert=True)


def _cifar100(*_):
  return tasks.images(num_classes=100, shape=(32, 32, 3))


KINDS: dict[str, Kind] = {
  'femnist': Kind(
    functools.partial(_femnist, 62), ('tff', 'leaf', 'table'), 'writer_id'
  ),
  'femnist_digits': Kind(functools.partial(_femnist, 10), ('tff',)),
  'cifar100': Kind(_cifar100, ('tff',)),
  'shakespeare': Kind(_shakespeare, ('tff', 'leaf', 'table'), 'character_id'),
  'stackoverflow': Kind(_stackoverflow, ('tff',)),
  'plays': Kind(_characters, ('plays',)),
  'table': Kind(_table, ('table',)),
}


def _layouts(path: pathlib.Path, kind: str) -> dict[str, pathlib.Path]:
  """The layouts at a path, and the file or folder that a reader takes."""
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

  `path` is a file or folder, of a layout of the kind, one of `KINDS`. Where
  files have no test examples, each client holds out its last samples, a share
  `test_share` of them, rounded, and at most all but one. Options: `client` and
  `split`, columns of a table; `length` of sequences; `vocabulary`, words;
  `size` of images; `classes`, `inputs`, `label` and `text` of a 'table'.

  Raises DataError for damaged files or another layout, ValueError for an
  unknown kind or option, OSError if `to` exists or cannot be written.
  """
  checks.choice('kind', kind, tuple(KINDS))
  make_task, expected, client = KINDS[kind]
  path = pathlib.Path(path).expanduser()
  options = {name: x for name, x in options.items() if x is not None}
  layouts = _layouts(path, kind)
  layout = next((x for x in expected if x in layouts), None)
  if layout is None:
    raise DataError(f'{path} has no files of {kind=} in layout {expected}.')
  read = getattr(readers, layout)
  if layout == 'table':
    client, split = options.pop('client', client), options.pop('split', None)
    if client is None:
      raise ValueError('A table requires client; set the column of clients.')
    read = functools.partial(read, client=client, split=split)
  task = make_task(layout, layouts[layout], options)
  if options:
    raise ValueError(
      f'{", ".join(sorted(options))} has no effect for {kind=} in layout '
      f'{layout}; remove it.'
    )

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
    numbers: dict[str | None, int] = {}
    splits = {
      split: grouping.Samples(pathlib.Path(folder, split), numbers)
      for split in (TRAIN, TEST)
    }
    bar = tqdm.tqdm(samples, 'reading', unit='record', disable=None)
    for split, client, arrays in bar:
      splits[split].add(client, arrays)
    train, test = (split.finish() for split in splits.values())
    if train is None:
      raise DataError('No client has training samples.')
    if (test is None) != (test_share is not None):
      owned = 'no' if test is None else 'own'
      raise DataError(
        f'There are {owned} test examples with {test_share=}; set test_share '
        'if there are none.'
      )
    of_clients = test is None or test.sizes[train.sizes > 0].any()
    chunks = train.chunks(test if of_clients else None)
    if test_share is not None:
      chunks = (_hold_out(chunk, test_share) for chunk in chunks)
    public = test.arrays if test is not None and not of_clients else None
    store.write(target, chunks, public, num_classes, tokenizer)
  return store.open(target)


def _hold_out(chunk: store.Chunk, share: float) -> store.Chunk:
  """Clients that hold out a share of their samples, the last ones."""
  sizes = chunk.sizes
  counts = np.minimum(np.rint(share * sizes).astype(np.int64), sizes - 1)
  ends = np.repeat(np.cumsum(sizes), sizes)
  held = ends - np.arange(sizes.sum()) <= np.repeat(counts, sizes)
  train = {name: x[~held] for name, x in chunk.train.items()}
  held_out = {name: x[held] for name, x in chunk.train.items()}
  return store.Chunk(sizes - counts, train, counts, held_out, chunk.ids)
