"""Imports as a command: kills, and the plays at hand."""

import subprocess
import sys
import time

from fl_sketch import experiment
from fl_sketch.data import store
from fl_sketch.data.natural import importing
import natural_files
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest
import runs

PLAYS = runs.DATA.parent / 'tinyshakespeare'
IMPORT = [
  '-m', 'launch.import_data', 'table', '--client=who', '--split=split',
  '--inputs=pixels', '--classes=7',
]  # fmt: skip


def write_table(path, clients):
  """Three samples of two bytes of each client; the third is held out."""
  at = np.arange(3 * clients)
  table = pa.table(
    {
      'who': at % clients,
      'pixels': np.stack([at % 251, at // 251 % 251], 1).tolist(),
      'label': at % 7,
      'split': np.where(at < 2 * clients, 'train', 'test'),
    }
  )
  parquet.write_table(table, path)


def content(folder):
  """The bytes of a store's files, but for the times of checked.json."""
  files = (x for x in folder.iterdir() if x.suffix == '.npy')
  return {x.name: x.read_bytes() for x in files} | {
    'store.json': (folder / 'store.json').read_bytes()
  }


@pytest.mark.nightly
def test_a_killed_import_ends_with_the_same_bytes(tmp_path):
  """Catches samples that a kill loses or doubles, and files that it leaves."""
  path = tmp_path / 'table.parquet'
  write_table(path, 20_000)
  command = [sys.executable, *IMPORT, str(path)]
  start = lambda to: subprocess.Popen([*command, f'--to={to}'], cwd=runs.ROOT)
  assert start(tmp_path / 'whole').wait() == 0
  killed, spooled = tmp_path / 'killed', tmp_path / 'killed.partial'
  # While records are read, and while the store is written.
  for there in (spooled / 'state.json', spooled / 'store'):
    process = start(killed)
    while not there.exists() and process.poll() is None:
      time.sleep(0.001)
    process.kill()
    assert process.wait() < 0
  assert not killed.exists()
  assert start(killed).wait() == 0
  assert content(killed) == content(tmp_path / 'whole')
  names = sorted(x.name for x in tmp_path.iterdir())
  assert names == ['killed', 'table.parquet', 'whole']


def test_a_slice_of_the_test_is_not_of_clients(files, tmp_path):
  """Catches clients that evaluate on a slice, and a test that is whole."""
  natural_files.KINDS['femnist'](files, range(5))
  importing.import_data('femnist', files, tmp_path / 'store')
  fields = {
    'dataset': 'store', 'dataset_options': {'folder': str(tmp_path / 'store')},
    'population': 5, 'cohort': 2, 'model': 'linear', 'personal_steps': 0,
  }  # fmt: skip
  exp = experiment.build(fields | {'test_slice': ':3'})
  assert exp.test['mask'].sum() == 3
  assert exp.held_out.sizes.tolist() == [2] * 5
  with pytest.raises(ValueError, match='remove train_slice'):
    experiment.build(fields | {'train_slice': ':3'})


def spoken():
  """The letters of each speaker, line by line."""
  letters, name = {}, None
  for line in (PLAYS / 'input.txt').read_text().splitlines():
    if not line:
      name = None
    elif name is None:
      name = line.removesuffix(':')
    else:
      letters[name] = letters.get(name, 0) + len(line)
  return letters


@pytest.mark.skipif(not PLAYS.is_dir(), reason=f'no plays in {PLAYS}')
def test_the_speakers_of_shakespeare_are_imported(tmp_path):
  """Catches a speaker who is lost, and letters that are not told."""
  to = tmp_path / 'plays'
  done = runs.command('import_data', 'plays', str(PLAYS), f'--to={to}')
  assert done.returncode == 0, done.stderr
  assert (to / 'sizes.png').exists()
  data, letters = store.open(to), spoken()
  names = [x.decode() for x in data.ids]
  assert f'| training | {len(names)} |' in done.stdout
  # Without the ends of lines a few fall below 1,000 letters.
  assert {k for k, n in letters.items() if n >= 1000} <= {*names}
  assert min(letters[name] for name in names) > 900
  told = sum(
    int((np.asarray(s['y']) >= 0).sum()) for s in (data.train, data.test)
  )
  assert told > sum(letters[name] for name in names)
  # Letters that the alphabet lacks have one number: here it has all.
  assert data.num_classes == 90
  assert not (np.asarray(data.train['x']) == 87).any()
