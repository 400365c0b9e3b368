"""Imported stores in experiments, and the plays at hand."""

from fl_sketch import experiment
from fl_sketch.data import store
import natural_files
import numpy as np
import pytest
import runs

PLAYS = runs.DATA.parent / 'tinyshakespeare'


def test_a_slice_of_the_test_is_not_of_clients(tmp_path):
  """Catches clients that evaluate on a slice, and a test that is whole."""
  natural_files.make_store('femnist', tmp_path, range(5))
  fields = {
    'dataset': 'store', 'dataset_options': {'folder': str(tmp_path / 'store')},
    'population': 5, 'cohort': 2, 'model': 'linear', 'personal_steps': 0,
  }  # fmt: skip
  exp = experiment.build(fields | {'test_slice': ':3'})
  assert exp.test['mask'].sum() == 3
  assert exp.held_out.sizes.tolist() == [2] * 5
  with pytest.raises(ValueError, match='train_slice'):
    experiment.build(fields | {'train_slice': ':3'})


@pytest.mark.skipif(not PLAYS.is_dir(), reason=f'no plays in {PLAYS}')
def test_the_speakers_of_shakespeare_are_imported(tmp_path):
  """Catches a speaker who is lost, and letters that the alphabet lacks."""
  to = tmp_path / 'plays'
  done = runs.command('import_data', 'plays', str(PLAYS), f'--to={to}')
  assert done.returncode == 0, done.stderr
  data = store.open(to)
  assert f'| training | {data.partition.population} |' in done.stdout
  assert b'ROMEO' in data.ids.tolist()
  # Letters that the alphabet lacks have one number: here it has all.
  assert data.num_classes == 90
  assert not (np.asarray(data.train['x']) == 87).any()
