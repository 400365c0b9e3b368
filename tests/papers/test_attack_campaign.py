"""Whole experiments: what is in the grid, in the folder, and after a stop."""

import functools
import json
import shutil
from unittest import mock

from fl_sketch import accounting
from fl_sketch.attacks import reconstruction
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import workdir
from launch import configs
import numpy as np
from papers.song.attacks import campaign, report, settings, victims
from papers.song.attacks.settings import AttackSetting
import pytest

CONFIGS = [name for name in configs.names() if name.endswith('_attack')]
from_mapping = settings.AttackConfig.from_mapping
TINY = {
  'examples': 3, 'sketches': ['gaussian'], 'sizes': [48], 'defended_size': 48,
  'epsilons': [8.0], 'rounds': 1,
  'cohort': 1000,  # of as many: an epsilon in closed form
  'optimizer': 'adam', 'steps': 3, 'restarts': 2,
}  # fmt: skip
DIGITS = {
  'dataset': 'digits', 'model': 'mlp', 'widths': [8], 'examples': 3,
  'labels': 'candidates', 'tv': 1e-3, 'optimizer': 'adam', 'steps': 2,
  'restarts': 1,
}  # fmt: skip


def grid_of(name, variant='quick'):
  c = configs.load(name).get_config(variant)
  return settings.grid(from_mapping(c.to_dict()))


def test_the_grid_of_the_demonstration_by_hand():
  gaussian = functools.partial(AttackSetting, 1, 'gaussian')
  assert grid_of('tanh_attack') == (
    AttackSetting(1),
    *(gaussian(size) for size in (4, 8, 12, 16, 24, 48)),
    *(gaussian(6, rounds) for rounds in (1, 2, 3, 4, 6, 8)),
    *(gaussian(48, 1, 'noise', x) for x in (0.01, 0.03, 0.1, 0.3, 1.0)),
    *(gaussian(48, 1, 'epsilon', x) for x in (1, 8, 100, 1000, 10000)),
    gaussian(48, 1, 'clip', 0.1),
    gaussian(48, 1, 'normalize', 0.1),
  )


@pytest.mark.parametrize('variant', ['', 'quick'])
@pytest.mark.parametrize('name', CONFIGS)
def test_a_config_has_a_file_for_each_setting(name, variant):
  """Catches settings that overwrite the results of one another."""
  grid = grid_of(name, variant)
  assert len({report.file_of(s._asdict()) for s in grid}) == len(grid)


def found(guess, y):
  """What an attack finds, made up."""
  numbers = np.array([3.0, 1.0, 2.0])
  return reconstruction.Reconstruction(guess, y, numbers, None, None)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The folder of a tiny experiment, and what `run` returned."""
  folder, attacked = tmp_path_factory.mktemp('attacks'), campaign._attacked

  def last_alone(c, victim, setting, x, y):
    is_last = setting.defence == 'epsilon'
    return attacked(c, victim, setting, x, y) if is_last else found(x + 0.1, y)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(campaign, '_attacked', last_alone)
    return folder, campaign.run(from_mapping(TINY), folder)


def test_a_finished_folder_has_rows_table_and_pictures(finished):
  folder, rows = finished
  lines = (folder / 'attacks.jsonl').read_text().splitlines()
  assert [json.loads(line) for line in lines] == rows
  sent = [(r['per_parameter'], r['per_unknown']) for r in rows]
  assert sent == [(1, 8), (0.5, 4), (0.5, 4)]
  kinds = [(r['defence'], r['strength']) for r in rows]
  assert kinds == [('none', 0), ('none', 0), ('epsilon', 8)]
  z = accounting.calibrate_noise_multiplier(epsilon=8, delta=1e-5, steps=1)
  assert [r.get('noise_multiplier') for r in rows] == [None] * 2 + [z]
  assert all(0 < r['median_error'] < np.inf for r in rows)
  files = {path.name for path in folder.iterdir()}
  assert files >= {'success.png', 'table.md'}
  two = from_mapping(TINY | {'sketches': ['gaussian', 'ams']})
  made = report.result(two, [*rows, rows[1] | {'sketch': 'ams'}])
  errors = made.seeds['relative error']['gradient, batch 1']
  assert (errors, *map(len, made.tables[0].rows)) == (rows[0]['errors'], 2, 2)
  fields = json.loads((folder / 'config.json').read_text())
  assert from_mapping(fields) == from_mapping(TINY)


def test_a_stopped_experiment_goes_on_with_fewer_devices_to_the_same_rows(
  finished, tmp_path, monkeypatch
):
  folder, rows = finished  # three examples on two devices
  lines = (folder / 'attacks.jsonl').read_text().splitlines(keepends=True)
  for name in ('config.json', 'problem.json'):
    shutil.copy(folder / name, tmp_path)
  (tmp_path / 'attacks.jsonl').write_text(''.join(lines[:-1]))
  one, attack = mesh_lib.cohort_mesh(1), mock.Mock(wraps=campaign.attack)
  monkeypatch.setattr(mesh_lib, 'cohort_mesh', lambda: one)
  monkeypatch.setattr(campaign, 'attack', attack)
  *before, last = campaign.run(from_mapping(TINY), tmp_path)
  (call,) = attack.call_args_list
  assert call.args[2] == AttackSetting(1, 'gaussian', 48, 1, 'epsilon', 8.0)
  assert before == rows[:-1]
  assert last.keys() == rows[-1].keys()
  for name, value in rows[-1].items():
    is_text = isinstance(value, str)
    assert last[name] == (value if is_text else pytest.approx(value, rel=1e-4))


def test_nothing_is_done_again_and_another_config_or_victim_is_refused(
  finished, monkeypatch
):
  """Catches rows of two configs, or of two victims, in one folder."""
  folder, rows = finished
  monkeypatch.setattr(campaign, 'attack', None)
  assert campaign.run(from_mapping(TINY), folder) == rows
  victim = victims.load(from_mapping(TINY))
  other = victim._replace(x=victim.x + 1)
  with pytest.raises(workdir.WorkdirError, match='steps'):
    campaign.run(from_mapping(TINY | {'steps': 4}), folder)
  monkeypatch.setattr(victims, 'load', lambda *_: other)
  with pytest.raises(workdir.WorkdirError, match='data'):
    campaign.run(from_mapping(TINY), folder)


def test_a_row_counts_numbers_and_judges_guesses(monkeypatch):
  """Guesses of batches in another order, one of three of them wrong."""
  c = from_mapping({'examples': 3, 'batch_sizes': [2]})

  def attacked(c, victim, setting, x, y):
    guess = x[:, ::-1].copy()
    guess[0] += 1
    return found(guess, y)

  monkeypatch.setattr(campaign, '_attacked', attacked)
  setting = AttackSetting(2, 'srft', 12, 3)
  row, images = campaign.attack(c, victims.load(c), setting)
  assert images is None
  assert row['success'] == pytest.approx(2 / 3)
  assert row['median_error'] == 0
  assert row['mse'] == pytest.approx(1 / 3)
  assert row['objective'] == 2
  # Three tables of 12 complex numbers, for two inputs of 12 numbers.
  assert row['per_parameter'] == 3 * 24 / 96
  assert row['per_unknown'] == 3 * 24 / (2 * 12)


def test_images_are_attacked_kept_and_drawn(tmp_path, monkeypatch):
  c, spy = from_mapping(DIGITS), mock.Mock(wraps=reconstruction.reconstruct)
  monkeypatch.setattr(reconstruction, 'reconstruct', spy)
  (row,) = campaign.run(c, tmp_path)
  passed = spy.call_args.kwargs
  assert {'labels', 'num_classes'}.isdisjoint(passed)
  np.testing.assert_array_equal(passed['candidates'], np.arange(10)[:, None])
  with np.load(tmp_path / 'images' / '1_gradient.npz') as file:
    guesses = file['images']
  assert guesses.shape == (3, 1, 8, 8, 1)
  victim = victims.load(c)
  mse = np.square(guesses[:, 0] - victim.x).mean()
  assert row['mse'] == pytest.approx(mse, rel=1e-5)
  assert 0 <= victim.x.min() < victim.x.max() <= 1
  assert (tmp_path / 'images_1.png').exists()
