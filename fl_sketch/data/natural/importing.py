"""Imports data with natural clients, from files as they are published."""

from collections.abc import Callable, Iterator
import json
import os
import pathlib
import shutil
from typing import Any, NamedTuple

from fl_sketch.data import store, store_writer
from fl_sketch.data.natural import (
  fedjax,
  folders,
  leaf,
  pfl,
  plays,
  spool as spool_lib,
  tables,
  tasks,
  tff,
)
from fl_sketch.data.natural.records import TRAIN, Reader, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import checks, extras
import numpy as np
import tqdm

_SAVED_EVERY = 2000  # records
_WORDS = 10_000  # of Stack Overflow's vocabulary


class Found(NamedTuple):
  """What lies at a path.

  Attributes:
    layout: 'tff', 'sqlite', 'fedjax', 'leaf', 'pfl', 'table', 'images' or
      'plays'.
    read: yields its records.
    path: of the file or folder that `read` takes.
  """

  layout: str
  read: Reader
  path: pathlib.Path


class Kind(NamedTuple):
  """A data set by name.

  Attributes:
    task: (what was found, options) -> what is learned.
    layouts: in which it is published.
    client: the column of clients in tables.
  """

  task: Callable[[Found, dict[str, Any]], tasks.Task]
  layouts: tuple[str, ...]
  client: str | None = None


def _femnist(classes):
  return lambda found, options: tasks.images(
    num_classes=classes, shape=(28, 28), invert=True
  )


def _cifar100(found, options):
  return tasks.images(num_classes=100, shape=(32, 32))


def _shakespeare(found, options):
  if found.layout in ('leaf', 'table'):
    return tasks.next_character()
  return tasks.characters(length=options.get('length') or 80)


def _stackoverflow(found, options):
  path = found.path.with_name('stackoverflow.word_count')
  with reading(path):
    words = tasks.word_counts(path, options.get('vocabulary') or _WORDS)
  return tasks.next_words(words, length=options.get('length') or 20)


def _plays(found, options):
  return tasks.characters(length=options.get('length') or 80)


def _photos(found, options):
  (table,) = found.path.glob('*train*.csv')
  with table.open() as file:
    place = file.readline().strip().split(',').index('class')
    most = max(int(line.strip().split(',')[place]) for line in file)
  size = options.get('size') or 224
  return tasks.images(num_classes=most + 1, shape=(size, size))


def _flair(found, options):
  size = options.get('size') or 256
  mapping = json.loads(_metadata(found.path, 'label_mapping'))
  return tasks.several_labels(len(mapping), (size, size))


def _reddit(found, options):
  return tasks.tokens(int(_metadata(found.path, 'vocabulary_size')))


def _table(found, options):
  classes = options.get('classes')
  if classes is None:
    raise ValueError("Expected classes, the number of labels, of a 'table'.")
  if options.get('text'):
    return tasks.characters(
      (options['text'],), length=options.get('length') or 80
    )
  names = (
    (options.get('inputs') or 'image',),
    (options.get('label') or 'label',),
  )
  size = options.get('size')
  shape = None if size is None else (size, size)
  return tasks.images(*names, num_classes=classes, shape=shape)


KINDS: dict[str, Kind] = {
  'femnist': Kind(
    _femnist(62), ('tff', 'sqlite', 'fedjax', 'leaf', 'table'), 'writer_id'
  ),
  'femnist_digits': Kind(_femnist(10), ('tff', 'sqlite', 'fedjax')),
  'cifar100': Kind(_cifar100, ('tff', 'sqlite')),
  'shakespeare': Kind(
    _shakespeare, ('tff', 'sqlite', 'leaf', 'table'), 'character_id'
  ),
  'stackoverflow': Kind(_stackoverflow, ('tff', 'sqlite')),
  'plays': Kind(_plays, ('plays',)),
  'photos': Kind(_photos, ('images',)),
  'flair': Kind(_flair, ('pfl',)),
  'reddit': Kind(_reddit, ('pfl',)),
  'table': Kind(_table, ('table',)),
}


def import_data(
  kind: str, path: str | os.PathLike, to: str | os.PathLike, **options: Any
) -> store.Store:
  """Writes the clients of published files to a store.

  It shows a bar if stderr is a terminal. Where it was stopped, it goes on at
  the next call; what was read lies in `to`.partial until then.

  Args:
    kind: one of `KINDS`.
    path: a file, or the folder of one layout that the kind is published in.
    to: folder of the store; must not exist.
    **options: of the kind: `client` and `split`, columns of a table; `length`
      of sequences; `vocabulary`, words; `size` of images; `classes`, `inputs`,
      `label` and `text` of a 'table'.

  Returns:
    The store, open.

  Raises:
    DataError: the files are damaged or of another layout.
    ValueError: the kind is unknown, or an option does not suit it.
    FileExistsError: `to` exists.
  """
  checks.choice('kind', kind, tuple(KINDS))
  target = pathlib.Path(to).expanduser()
  if target.exists():
    raise FileExistsError(f'Expected {target} not to exist.')
  given = {k: v for k, v in options.items() if v is not None}
  found = _find(kind, pathlib.Path(path).expanduser(), given)
  task = KINDS[kind].task(found, given)
  aside = target.with_name(f'{target.name}.partial')
  source = {'kind': kind, 'options': given, 'task': task.options}
  source |= {'files': _fingerprint(found.path, aside)}
  spool = spool_lib.Spool(aside, source)
  try:
    _spool(spool, found, task, kind)
    _write(spool, target, task)
  except DataError:  # another start would fail as well
    shutil.rmtree(aside, ignore_errors=True)
    raise
  finally:
    spool.close()
  shutil.rmtree(aside, ignore_errors=True)
  return store.open(target)


def _spool(spool, found, task, kind):
  """Reads all records behind those that are spooled already."""
  done = spool.records
  bar = tqdm.tqdm(
    desc=f'reading {kind}', unit='record', unit_scale=True, disable=None,
    mininterval=0.5,
  )  # fmt: skip
  with bar:
    for i, record in enumerate(found.read(found.path)):
      bar.update()
      if i < done:
        continue
      try:
        arrays = task.arrays(record)
        spool.add(record.client, record.split, arrays)
      except (ValueError, TypeError, KeyError) as error:
        raise DataError(
          f'Samples of client {record.client!r} in {found.path}: {error}'
        ) from error
      if spool.records % _SAVED_EVERY == 0:
        spool.save()
  spool.save()


def _write(spool, target, task):
  """Writes the store of the clients that train on something.

  It is made beside the spool, so that a kill leaves nothing elsewhere.
  """
  if not spool.records:
    raise DataError('Expected at least one client in the files.')
  public = spool.public()
  trained = np.flatnonzero(spool.sizes(TRAIN))
  if public is None and not spool.sizes('test')[trained].any():
    raise DataError(
      'Expected test examples beside those that clients train on: put them in '
      'a file or a column of splits of their own.'
    )
  chunks = spool.chunks(trained)
  if public is not None:
    chunks = (x._replace(held=None, held_sizes=None) for x in chunks)
  shutil.rmtree(spool.folder / 'store', ignore_errors=True)
  made = spool.folder / 'store' / target.name
  store.write(made, chunks, public, task.num_classes, len(trained))
  store_writer.rename(made, target)


def _find(kind, path, options) -> Found:
  """Finds out which layout lies at a path; refuses those of other kinds."""
  client = options.get('client') or KINDS[kind].client
  found = next(_layouts(path, client, options.get('split')), None)
  layouts = KINDS[kind].layouts
  if found is None or found.layout not in layouts:
    what = 'nothing that is known' if found is None else found.layout
    raise DataError(
      f'Expected files of {kind!r} at {path}, as {", ".join(layouts)}; found '
      f'{what}.'
    )
  return found


def _layouts(path, client, split) -> Iterator[Found]:
  if not path.exists():
    raise DataError(f'{path} does not exist.')
  files = [path] if path.is_file() else sorted(path.iterdir())
  of = lambda *ends: [x for x in files if x.name.endswith(ends)]
  for file in of('.h5', '.hdf5'):
    if _has(file, 'examples'):
      if file.stem.endswith('_train'):
        yield Found('tff', tff.hdf5, file)
    else:
      yield Found('pfl', pfl.hdf5, file)
  for file in of('.sqlite.lzma'):
    yield Found('sqlite', tff.sqlite, file)
  for file in of('.sqlite'):
    if not file.stem.endswith('_test'):
      fed = file.stem.endswith('_train')
      read = fedjax.sqlite if fed else tff.sqlite
      yield Found('fedjax' if fed else 'sqlite', read, file)
  if path.is_dir() and list(path.glob('train/*.json')):
    yield Found('leaf', leaf.json_files, path)
  if path.is_dir() and (tables_ := of('train.csv')) and not of('.parquet'):
    with tables_[0].open() as file:
      if 'image_id' in file.readline():
        yield Found('images', folders.images, path)
  if of(*tables.SUFFIXES):
    if client is None:
      raise ValueError('Expected client, the column of clients, of a table.')
    yield Found('table', lambda x: tables.rows(x, client, split), path)
  if of('input.txt') or path.suffix == '.txt':
    yield Found('plays', plays.speeches, path)


def _has(path, name) -> bool:
  with extras.needed('natural'):
    import h5py

  with reading(path, RuntimeError), h5py.File(path, 'r') as file:
    return name in file


def _metadata(path, name) -> Any:
  with extras.needed('natural'):
    import h5py

  with reading(path, KeyError, RuntimeError), h5py.File(path, 'r') as file:
    return file[f'metadata/{name}'][()]


def _fingerprint(path, aside) -> list[Any]:
  """Names, sizes and times of files, by which a start knows them again."""
  folder = path if path.is_dir() else path.parent
  files = sorted(
    x for x in folder.rglob('*') if x.is_file() and aside not in x.parents
  )
  stats = [(x.relative_to(folder).as_posix(), x.stat()) for x in files]
  return [[name, s.st_size, s.st_mtime_ns] for name, s in stats]


__all__ = ['KINDS', 'Records', 'import_data']
