"""Curves over seeds: which runs make one line, its numbers, its band."""

import csv
import json

from fl_sketch import runs
from fl_sketch.runs import metrics, plots
from fl_sketch.utils import markdown
import harness
import numpy as np
import pytest


def write_run(folder, values, seed=0, up=1000, **fields):
  """A run with a test accuracy in every second round, from the second."""
  folder.mkdir(parents=True)
  config = {'seed': seed, 'algorithm': 'safl', 'sketch': {'size': 50}} | fields
  (folder / 'config.json').write_text(json.dumps(config))
  lines = []
  for r in range(2 * len(values)):
    row = {'round': r, 'train_loss': 2.0 / (r + 1)}
    row |= {'total_uplink_bytes': up * (r + 1)}
    row |= {'total_downlink_bytes': 3 * up * (r + 1)}
    if r % 2:
      row['test_accuracy'] = values[r // 2]
    lines.append(json.dumps(row) + '\n')
  (folder / 'metrics.jsonl').write_text(''.join(lines))
  return folder


@pytest.fixture
def folders(tmp_path):
  """Three seeds of one config, one of which has more rounds, and another."""
  values = [0.1, 0.2, 0.4], [0.3, 0.2, 0.5], [0.2, 0.5, 0.3, 0.9]
  same = [
    write_run(tmp_path / f'{i}', v, seed=i, up=1000 * (i + 1))
    for i, v in enumerate(values)
  ]
  other = {'sketch': {'size': 20}, 'client_lr': 0.3}
  return [*same, write_run(tmp_path / 'other', [0.5, 0.6], **other)]


@pytest.mark.parametrize(('x', 'size'), [('down', 6e-3), ('bytes', 8e-3)])
def test_a_line_is_the_mean_plots_against_each_axis(x, size, folders, tmp_path):
  """Catches bytes of one seed, a round that one lacks, and a wrong band."""
  path = tmp_path / 'new' / 'plot.png'
  y = ['test_accuracy', 'train_loss']
  panels, _ = runs.plot(folders, path, x=x, y=y)
  ys = np.array([[0.1, 0.2, 0.4], [0.3, 0.2, 0.5], [0.2, 0.5, 0.3]])
  line, other = panels[0].lines
  np.testing.assert_allclose(line.x, size * np.array([2, 4, 6]))
  np.testing.assert_allclose(line.y, ys.mean(0))
  half = metrics.half_width(ys.std(0, ddof=1) / 3**0.5, 3)
  low, high = ys.mean(0) - half, ys.mean(0) + half
  np.testing.assert_allclose([line.low, line.high], [low, high])
  assert np.isnan(other.low).tolist() == [True, True]  # of one run
  assert [len(line.x) for line in panels[1].lines] == [6, 4]
  kept = json.loads(path.with_suffix('.json').read_text())
  assert kept['panels'][0]['lines'][1]['y'] == [0.5, 0.6]
  assert [*kept['runs'].values()] == [
    [str(folder) for folder in folders[:3]], [str(folders[3])],
  ]  # fmt: skip


def test_a_sweep_stands_for_its_points(tmp_path):
  """Catches points that are left out, or a sweep that is no run."""
  for i in range(3):
    write_run(tmp_path / 'sweep' / 'points' / f'00{i}', [0.1, 0.2], seed=i)
  (tmp_path / 'sweep' / 'points.jsonl').touch()
  (group,) = plots.groups([tmp_path / 'sweep'])
  assert len(group.rows) == 3


def test_what_cannot_be_drawn_is_named(tmp_path):
  """Catches an empty figure, and an interval of one run twice."""
  one = write_run(tmp_path / 'one', [0.1, 0.2])
  empty = write_run(tmp_path / 'empty', [], seed=1)
  apart = write_run(tmp_path / 'apart', [None, None, 0.1], seed=1)
  for name, folders in (
    ('absent', [tmp_path / 'absent']), ('one', [one, one]), ('empty', [empty]),
    ('test_los', [one]), ('test_accuracy', [one, apart]),
  ):  # fmt: skip
    y = [name if name.startswith('test') else 'test_accuracy']
    with pytest.raises(ValueError, match=name):
      runs.plot(folders, tmp_path / 'plot.png', y=y)
  assert not (tmp_path / 'plot.png').exists()


def test_the_command_says_where_the_figure_is(folders, tmp_path):
  """Catches flags that do not reach the figure, and a traceback."""
  out = tmp_path / 'plot.png'
  flags = '--x=down', '--y=train_loss', f'--out={out}'
  done = harness.command('plot', *map(str, folders), *flags)
  assert done.returncode == 0, done.stderr
  *table, where = done.stdout.splitlines()
  assert where == str(out)
  rows = [
    ['run', 'seeds', 'rounds', 'train_loss', 'MB up', 'MB down'],
    ['sketch.size=50', '3', '8', '0.3056', '0.014', '0.042'],
    ['sketch.size=20, client_lr=0.3', '1', '4', '0.5', '0.004', '0.012'],
  ]
  assert markdown.cells('\n'.join(table)) == rows
  kept = [*csv.reader(out.with_suffix('.csv').read_text().splitlines())]
  assert kept[0] == rows[0]
  assert float(kept[1][3]) == pytest.approx((1 / 3 + 1 / 3 + 1 / 4) / 3)
