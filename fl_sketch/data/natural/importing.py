"""Imports data sets with natural clients from files as they are published."""

from collections.abc import Callable, Iterator
import contextlib
import itertools
import json
import pathlib
import shutil
from typing import Any, NamedTuple

from fl_sketch.data import store, store_writer
from fl_sketch.data.natural import readers, records, tasks, tff
from fl_sketch.data.natural.records import PUBLIC, TEST, TRAIN
from fl_sketch.data.sources import DataError, PathLike
from fl_sketch.utils import checks, digests
from fl_sketch.utils.files import SaveError
import numpy as np
import tqdm

_SAVED_EVERY = 2000  # records
_WORDS = 10_000  # of Stack Overflow's vocabulary
_OF_TABLES = 'client', 'split'


class Found(NamedTuple):
  """Data files found at a path."""

  layout: str  # see `_layouts`
  read: records.Reader
  path: pathlib.Path  # of the file or folder that `read` takes


class Kind(NamedTuple):
  """A federated data set: its task, and the file layouts it comes in."""

  # What is learned of what was found; pops the options that it takes.
  task: Callable[[Found, dict[str, Any]], tasks.NaturalTask]
  layouts: tuple[str, ...]  # in which it is published
  client: str | None = None  # the column of clients in tables
  digits: bool = False  # the part of EMNIST that is named after digits
  strangers: bool = False  # the test's clients are others, of the same names


def _characters(found, options, *names):
  return tasks.characters(*names, length=options.pop('length', 80))


def _shakespeare(found, options):
  of_leaf = found.layout in ('leaf', 'table')
  return tasks.next_character() if of_leaf else _characters(found, options)


def _stackoverflow(found, options):
  path = found.path.with_name('stackoverflow.word_count')
  with records.reading(path):
    words = tasks.word_counts(path, options.pop('vocabulary', _WORDS))
  return tasks.next_words(words, length=options.pop('length', 20))


def _photos(found, options):
  size, classes = options.pop('size', 224), readers.count_classes(found.path)
  return tasks.images(num_classes=classes, shape=(size, size, 3), resize=True)


def _flair(found, options):
  count = lambda text: len(json.loads(text))
  labels = readers.metadata(found.path, 'label_mapping', count)
  return tasks.several_labels(labels, (options.pop('size', 256),) * 2)


def _table(found, options):
  if text := options.pop('text', None):
    return _characters(found, options, (text,))
  if (classes := options.pop('classes', None)) is None:
    raise ValueError(
      "A 'table' without text requires classes; set the number of labels."
    )
  names = (options.pop('inputs', 'image'),), (options.pop('label', 'label'),)
  size = options.pop('size', None)
  shape = None if size is None else (size, size)
  return tasks.images(*names, num_classes=classes, shape=shape, resize=True)


_femnist = lambda classes: (
  lambda *_: tasks.images(num_classes=classes, shape=(28, 28, 1), invert=True)
)
_cifar100 = lambda *_: tasks.images(num_classes=100, shape=(32, 32, 3))
_reddit = lambda found, _: tasks.tokens(
  readers.metadata(found.path, 'vocabulary_size', int)
)
_TFF = 'tff', 'sqlite'  # what TensorFlow Federated publishes
KINDS: dict[str, Kind] = {
  'femnist': Kind(
    _femnist(62), (*_TFF, 'fedjax', 'leaf', 'table'), client='writer_id'
  ),
  'femnist_digits': Kind(_femnist(10), (*_TFF, 'fedjax'), digits=True),
  'cifar100': Kind(_cifar100, _TFF, strangers=True),
  'shakespeare': Kind(_shakespeare, (*_TFF, 'leaf', 'table'), 'character_id'),
  'stackoverflow': Kind(_stackoverflow, _TFF),
  'plays': Kind(_characters, ('plays',)),
  'photos': Kind(_photos, ('images',)),
  'flair': Kind(_flair, ('pfl',)), 'reddit': Kind(_reddit, ('pfl',)),
  'table': Kind(_table, ('table',)),
}  # fmt: skip


def find(
  name: str, path: pathlib.Path, options: dict[str, Any]
) -> tuple[Found, tasks.NaturalTask]:
  """Finds out which layout of a kind lies at a path, and what is learned.

  `options` are of the kind and its layout, without None.
  """
  checks.choice('kind', name, tuple(KINDS))
  kind = KINDS[name]
  client, split = options.get('client', kind.client), options.get('split')
  every = [*_layouts(path, kind, client, split)]
  found = next((x for x in every if x.layout in kind.layouts), None)
  if found is None:
    others = ', '.join(x.layout for x in every) or 'nothing that is known'
    raise DataError(
      f'{path} has no files of {name!r} in a layout of '
      f'{", ".join(kind.layouts)}; found {others}.'
    )
  of_table = _OF_TABLES if found.layout == 'table' else ()
  if of_table and client is None:
    raise ValueError('A table requires client; set the column of clients.')
  if of_table and client == split:
    raise ValueError(f'{client=} is the same column as {split=}; set another.')
  unused = {k: v for k, v in options.items() if k not in of_table}
  task = kind.task(found, unused)  # pops those that it takes
  if unused:
    raise ValueError(
      f'{", ".join(sorted(unused))} has no effect for {name!r} in layout '
      f'{found.layout}; remove it.'
    )
  if kind.strangers:  # the test belongs to no client
    public = lambda x: x._replace(split=PUBLIC) if x.split == TEST else x
    read = lambda path: map(public, found.read(path))
    return found._replace(read=read), task
  return found, task


def _layouts(path, kind, client, split) -> Iterator[Found]:
  if not path.exists():
    raise DataError(f'{path} does not exist.')
  files = sorted(path.iterdir()) if path.is_dir() else [path]
  of_part = lambda x: x.name.endswith(('.h5', '_train.sqlite'))
  # EMNIST and its digits lie in one folder.
  other = lambda x: of_part(x) and ('digits' in x.stem) != kind.digits
  files = [x for x in files if not other(x)]
  of = lambda *ends: [x for x in files if x.name.endswith(ends)]
  for file in of('.h5', '.hdf5'):
    with records.hdf5(file) as content:
      is_pfl = 'examples' not in content
    if is_pfl:
      yield Found('pfl', readers.pfl, file)
    elif file.stem.endswith('_train'):
      yield Found('tff', tff.hdf5, file)
  for file in of('.sqlite.lzma', '.sqlite'):
    if file.stem.endswith('_train'):
      yield Found('fedjax', tff.fedjax, file)
    elif not file.stem.endswith('_test'):
      yield Found('sqlite', lambda x: tff.sqlite(x, kind.digits), file)
  if path.is_dir() and list(path.glob('train/*.json')):
    yield Found('leaf', readers.leaf, path)
  if path.is_dir() and readers.has_images(path) and not of('.parquet'):
    yield Found('images', readers.images, path)
  if of(*readers.SUFFIXES):
    yield Found('table', lambda x: readers.rows(x, client, split), path)
  if of('input.txt') or path.suffix == '.txt':
    yield Found('plays', readers.speeches, path)


def import_data(
  kind: str,
  path: PathLike,
  to: PathLike,
  *,
  test_share: float | None = None,
  **options: Any,
) -> store.Store:
  """Writes the clients of published files to a store.

  It shows a bar if stderr is a terminal. Where it was stopped, it goes on at
  the next call; what was read lies in `to`.partial until then.

  Args:
    kind: one of `KINDS`.
    path: a file, or the folder of one layout that the kind is published in.
    to: folder of the store; must not exist.
    test_share: of each client's samples, the last ones, that it holds out, of
      files without test examples; rounded, and at most all but one.
    **options: of the kind: `client` and `split`, columns of a table; `length`
      of sequences; `vocabulary`, words; `size` of images; `classes`, `inputs`,
      `label` and `text` of a 'table'.

  Raises:
    DataError: the files are damaged or of another layout.
    ValueError: the kind is unknown, or an option does not suit it.
    FileExistsError: `to` exists, or `to`.partial has other files.
    SaveError: `to` cannot be written, as on a full disk.
  """
  if test_share is not None:
    checks.fraction('test_share', test_share)
  target = pathlib.Path(to).expanduser()
  if target.exists():
    raise FileExistsError(f'{target} exists; name another folder.')
  given = {k: v for k, v in options.items() if v is not None}
  found, task = find(kind, pathlib.Path(path).expanduser(), given)
  aside = target.with_name(f'{target.name}.partial')
  source = {'kind': kind, 'options': given, 'task': task.options}
  source |= {'files': _fingerprint(found.path, aside)}
  try:
    with contextlib.closing(records.Spool(aside, source)) as spool:
      _spool(spool, found, task, kind)
      _write(spool, found.path, target, task, test_share)
  except DataError:  # another start would fail as well
    shutil.rmtree(aside, ignore_errors=True)
    raise
  except (FileExistsError, SaveError):
    raise
  except OSError as error:
    raise SaveError(f'{target} cannot be written: {error}.') from error
  shutil.rmtree(aside, ignore_errors=True)
  return store.open(target)


def _spool(spool, found, task, kind):
  bar = tqdm.tqdm(
    found.read(found.path), f'reading {kind}', unit='record', unit_scale=True,
    disable=None, mininterval=0.5,
  )  # fmt: skip
  for record in itertools.islice(bar, spool.records, None):
    try:
      spool.add(record.client, record.split, task.arrays(record))
    except records.ODD as error:
      raise DataError(
        f'Samples of client {record.client!r} in {found.path}: {error}'
      ) from error
    if spool.records % _SAVED_EVERY == 0:
      spool.save()
  spool.save()


def _write(spool, path, target, task, test_share):
  trained = np.flatnonzero(spool.sizes(TRAIN))
  if not len(trained):
    raise DataError(f'No client has training samples in {path}.')
  test = spool.arrays(PUBLIC)
  of_clients = test is None and spool.sizes(TEST)[trained].any()
  if test is None and not of_clients:
    test = spool.arrays(TEST)  # of users of their own
  none = test is None and not of_clients
  if none != (test_share is not None):
    raise DataError(
      f'{path} has {"no" if none else "its own"} test examples: '
      f'{"set test_share" if none else f"remove {test_share=}"}.'
    )
  chunks = spool.chunks(trained, of_clients)
  if none:
    chunks = (_split(chunk, test_share) for chunk in chunks)
  # Made beside the spool, so that a kill leaves nothing elsewhere.
  shutil.rmtree(spool.folder / 'store', ignore_errors=True)
  made = spool.folder / 'store' / target.name
  of = task.num_classes, len(trained), task.tokenizer
  store.write(made, chunks, test, *of)
  store_writer.rename(made, target)


def _split(chunk: store.Chunk, share: float) -> store.Chunk:
  """Clients that hold out a share of their samples, the last ones."""
  sizes = chunk.sizes
  counts = np.minimum(np.rint(share * sizes).astype(np.int64), sizes - 1)
  ends = np.repeat(np.cumsum(sizes), sizes)
  held = ends - np.arange(sizes.sum()) <= np.repeat(counts, sizes)
  part = lambda marks: {k: x[marks] for k, x in chunk.train.items()}
  return store.Chunk(sizes - counts, part(~held), counts, part(held), chunk.ids)


def _fingerprint(path, aside) -> str:
  """A digest of names, sizes and times of files: a start knows them again."""
  folder = (path if path.is_dir() else path.parent).resolve()
  aside = aside.resolve()
  # Of a file those that are named like it, as NAME_test beside NAME_train.
  name = path.stem.removesuffix('_train')
  files = (x for x in folder.iterdir() if x.name.startswith(name))
  if path.is_dir():
    files = (x for x in folder.rglob('*') if aside not in x.parents)
  stats = [
    [x.relative_to(folder).as_posix(), x.stat().st_size, x.stat().st_mtime_ns]
    for x in sorted(files)
    if x.is_file()
  ]
  return digests.of_text(json.dumps(stats))
