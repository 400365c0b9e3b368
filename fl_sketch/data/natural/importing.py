"""Imports data with natural clients, from files as they are published."""

import contextlib
import itertools
import json
import pathlib
import shutil
from typing import Any

from fl_sketch.data import store, store_writer
from fl_sketch.data.natural import kinds
from fl_sketch.data.natural.records import ODD, PUBLIC, TEST, TRAIN, Spool
from fl_sketch.data.sources import DataError, PathLike
from fl_sketch.utils import checks, digests
from fl_sketch.utils.files import SaveError
import numpy as np
import tqdm

_SAVED_EVERY = 2000  # records


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
    kind: one of `kinds.KINDS`.
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
  found, task = kinds.find(kind, pathlib.Path(path).expanduser(), given)
  aside = target.with_name(f'{target.name}.partial')
  source = {'kind': kind, 'options': given, 'task': task.options}
  source |= {'files': _fingerprint(found.path, aside)}
  try:
    with contextlib.closing(Spool(aside, source)) as spool:
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
    except ODD as error:
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
