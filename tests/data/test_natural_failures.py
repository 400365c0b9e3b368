"""Files that cannot be imported, and imports that do not end."""

import errno
import pathlib

from fl_sketch.data import sources
from fl_sketch.data.natural import importing, records
from fl_sketch.utils.files import SaveError
import natural_files
from natural_files import LAYOUTS, people, write_fedjax, write_tff
import numpy as np
import pytest


@pytest.mark.parametrize('name', [*LAYOUTS, *natural_files.KINDS])
def test_a_damaged_file_of_any_kind_is_named(name, files, tmp_path):
  """Catches a damage that is a bare traceback, or leaves part of a store."""
  if name in LAYOUTS:
    LAYOUTS[name](files, *people())
  else:
    natural_files.KINDS[name](files, range(2))
  for path in filter(pathlib.Path.is_file, [*files.rglob('*')]):
    content = path.read_bytes()
    # Half a text is a text; half a table of images has fewer of them.
    broken = b'\xff' if path.suffix in ('.txt', '.csv') else b''
    path.write_bytes(content[: len(content) // 2] + broken)
  kind = 'femnist' if name in LAYOUTS else name
  with pytest.raises(sources.DataError, match='files'):
    importing.import_data(kind, files, tmp_path / 'store')
  assert [x.name for x in tmp_path.iterdir()] == ['files']


@pytest.mark.parametrize('kind', natural_files.KINDS)
def test_files_of_other_kinds_are_refused(kind, tmp_path):
  """Catches images or texts of another data set that are taken for its own."""
  for other, write in natural_files.KINDS.items():
    (files := tmp_path / other).mkdir()
    write(files, range(2))
    if other != kind:
      with pytest.raises(sources.DataError, match=f'{other}'):
        importing.import_data(kind, files, tmp_path / 'store')
  assert sorted(x.name for x in tmp_path.iterdir()) == sorted(
    natural_files.KINDS
  )


def test_foreign_files_are_refused_by_name(tmp_path):
  """Catches a file that is read as another layout."""
  with pytest.raises(sources.DataError, match='does not exist'):
    importing.import_data('plays', tmp_path / 'no', tmp_path / 's')
  with pytest.raises(ValueError, match="kind='femist'"):
    importing.import_data('femist', tmp_path, tmp_path / 's')


def test_an_import_that_was_stopped_goes_on(files, tmp_path, monkeypatch):
  """Catches samples that are there twice, or not at all, after a restart."""
  train, test = people()
  write_fedjax(files, train, test)
  whole = importing.import_data('femnist', files, tmp_path / 'whole')
  monkeypatch.setattr(importing, '_SAVED_EVERY', 2)
  add, calls = records.Spool.add, []

  def interrupted(self, *args):
    calls.append(args)
    if len(calls) == 4:  # the third is written, but not saved
      raise KeyboardInterrupt
    add(self, *args)

  with monkeypatch.context() as patch:
    patch.setattr(records.Spool, 'add', interrupted)
    with pytest.raises(KeyboardInterrupt):
      importing.import_data('femnist', files, tmp_path / 'again')
  assert (tmp_path / 'again.partial').is_dir()
  (files / 'other').write_text('no file of the data')
  seen = []
  with monkeypatch.context() as patch:
    patch.setattr(
      records.Spool, 'add', lambda self, *a: (seen.append(a), add(self, *a))
    )
    again = importing.import_data('femnist', files, tmp_path / 'again')
  assert len(seen) == len(train) + len(test) - 2
  assert not (tmp_path / 'again.partial').exists()
  for name in 'x', 'y':
    np.testing.assert_array_equal(again.train[name], whole.train[name])
    np.testing.assert_array_equal(again.test[name], whole.test[name])
  assert again.ids.tolist() == whole.ids.tolist()


def test_a_folder_of_somebody_else_is_left_alone(files, tmp_path):
  """Catches files of a user that an import deletes."""
  write_fedjax(files, *people())
  mine = tmp_path / 'to.partial' / 'thesis.tex'
  mine.parent.mkdir()
  mine.write_text('mine')
  with pytest.raises(FileExistsError, match=r'to\.partial'):
    importing.import_data('femnist', files, tmp_path / 'to')
  assert mine.read_text() == 'mine'
  with pytest.raises(FileExistsError, match='files exists; name'):
    importing.import_data('femnist', files, files)


def test_an_import_goes_on_below_its_files(tmp_path, monkeypatch):
  """Catches a spool that counts as one of the files, and is made anew."""
  LAYOUTS['table'](tmp_path, *people())
  monkeypatch.chdir(tmp_path)
  start, seen = importing._spool, []

  def spooled(spool, *args):
    seen.append(spool.records)
    start(spool, *args)
    raise KeyboardInterrupt

  monkeypatch.setattr(importing, '_spool', spooled)
  for _ in range(2):
    with pytest.raises(KeyboardInterrupt):
      importing.import_data('femnist', tmp_path, 'store')
  assert seen[0] == 0 < seen[1]


def test_a_place_that_cannot_be_written_is_named(files, tmp_path, monkeypatch):
  """Catches a bare traceback of a wrong --to, and of a full disk."""
  write_tff(files, *people())
  with pytest.raises(SaveError, match=r'train.h5/to cannot be written'):
    importing.import_data(
      'femnist', files, files / 'fed_emnist_train.h5' / 'to'
    )

  def full(*args):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(records.Spool, 'add', full)
  with pytest.raises(SaveError, match=r'store cannot be written: .*No space'):
    importing.import_data('femnist', files, tmp_path / 'store')
