"""Imports as a command: kills, large populations, and the plays at hand."""

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
# The clients of Stack Overflow.
CLIENTS, SAMPLES, BYTES = 342_477, 10**7, 2 * 2**30
IMPORT = [
  '-m', 'launch.import_data', 'table', '--client=who', '--split=split',
  '--inputs=pixels', '--classes=7',
]  # fmt: skip


def write_table(path, clients, samples):
  """Samples of two bytes; returns the sizes of clients.

  The first samples of all clients come before all others. A client's last one,
  of those who have two or more, is held out.
  """
  rng = np.random.default_rng(0)
  extra = rng.multinomial(samples - clients, np.full(clients, 1 / clients))
  owner = np.repeat(np.arange(clients, dtype=np.int32), 1 + extra)
  last = np.append(owner[1:] != owner[:-1], True) & (extra[owner] > 0)
  is_first = np.append(True, owner[1:] != owner[:-1])
  order = np.argsort(~is_first, kind='stable')
  writer = None
  for first in range(0, samples, 2**20):
    at = order[first : first + 2**20]
    some, size = owner[at], len(at)
    pixels = np.stack([at % 251, at // 251 % 251], 1).astype(np.uint8).ravel()
    ends = pa.array(np.arange(0, 2 * size + 1, 2, np.int32))
    table = pa.table(
      {
        'who': some,
        'pixels': pa.ListArray.from_arrays(ends, pa.array(pixels)),
        'label': (at % 7).astype(np.int8),
        'split': np.where(last[at], 'test', 'train'),
      }
    )
    writer = writer or parquet.ParquetWriter(path, table.schema)
    writer.write_table(table)
  writer.close()
  return 1 + extra


def content(folder):
  """The bytes of a store's files, but for the times of checked.json."""
  files = (x for x in folder.iterdir() if x.suffix == '.npy')
  return {x.name: x.read_bytes() for x in files} | {
    'store.json': (folder / 'store.json').read_bytes()
  }


@pytest.mark.nightly
def test_a_killed_import_ends_with_the_same_bytes(tmp_path):
  """Catches samples that a kill loses or doubles, and files that it leaves.

  `test_an_import_that_was_stopped_goes_on` is the fast case.
  """
  path = tmp_path / 'table.parquet'
  write_table(path, 20_000, 60_000)
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


@pytest.mark.long
def test_the_clients_of_stack_overflow_fit_in_two_gigabytes(tmp_path):
  """Catches a reader, or a sort, that holds all samples in memory.

  The fast case is `test_ten_thousand_clients_of_one_sample`.
  """
  path = tmp_path / 'table.parquet'
  sizes = write_table(path, CLIENTS, SAMPLES)
  script = (
    'import resource, runpy, sys\n'
    'try:\n'
    "  runpy.run_module('launch.import_data', run_name='__main__')\n"
    'except SystemExit as end:\n'
    '  assert not end.code\n'
    'print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)\n'
  )
  to = tmp_path / 'store'
  printed = runs.python('-c', script, *IMPORT[2:], path, f'--to={to}')
  assert int(printed.splitlines()[-1]) < BYTES
  data = store.open(to)
  held = np.diff(data.held_out)
  np.testing.assert_array_equal(held, sizes > 1)
  np.testing.assert_array_equal(data.partition.sizes + held, sizes)
  train = np.ones(SAMPLES, bool)
  train[np.cumsum(sizes)[sizes > 1] - 1] = False
  at = np.flatnonzero(train)
  np.testing.assert_array_equal(data.train['y'], at % 7)
  np.testing.assert_array_equal(np.asarray(data.train['x'])[:, 0], at % 251)


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
