"""Metrics files are read; curves over seeds have their numbers and bands."""

import csv
import json
from unittest import mock

from fl_sketch import runs
from fl_sketch.runs import figures, metrics, plots
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
  assert 'means of 3 seeds; bands: 95 % intervals' in panels[0].title
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


def test_a_line_of_unset_fields_has_a_label(tmp_path):
  """Catches a line that the legend leaves out."""
  folders = [write_run(tmp_path / f'{i}', [0.1], seed=i) for i in range(2)]
  folders.append(write_run(tmp_path / 'other', [0.1], client_lr=0.3))
  labels = [group.label for group in plots.groups(folders)]
  assert labels == ['client_lr=none', 'client_lr=0.3']


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


def test_reads_what_was_written_but_for_a_last_line_that_is_cut(tmp_path):
  """Catches a resumed run that its last, unfinished line stops."""
  path = write_run(tmp_path / 'run', [0.1, 0.2], up=2**70) / 'metrics.jsonl'
  rows = [*map(json.loads, path.read_text().splitlines())]
  assert runs.read_metrics(path.parent) == rows
  with path.open('a') as file:
    file.write('{"round": 6, "tra')
  assert runs.read_metrics(path) == rows


@pytest.mark.parametrize('garbage', ['{"round"', '7', '\xff\x00 \xfe'])
def test_a_garbage_line_is_named(garbage, tmp_path):
  """Catches rows that are left out without a word."""
  path = write_run(tmp_path / 'run', [0.1, 0.2]) / 'metrics.jsonl'
  lines = path.read_bytes().splitlines(keepends=True)
  lines.insert(2, garbage.encode('latin-1') + b'\n')
  path.write_bytes(b''.join(lines))
  with pytest.raises(metrics.MetricsError, match=f'{path}:3'):
    runs.read_metrics(path)


def test_a_run_is_titled_and_its_bytes_are_of_both_directions(
  tmp_path, monkeypatch
):
  """Catches the uplink alone, and the folder in place of what was trained."""
  drawn = []
  draw = lambda panels: drawn.extend(panels) or mock.MagicMock()
  monkeypatch.setattr(figures, 'draw', draw)
  config = {'dataset': 'digits', 'model': 'mlp', 'b': None}
  runs.draw_run(write_run(tmp_path / 'run', [0.1, 0.2, 0.4], **config))
  assert {panel.title for panel in drawn} == {'safl, digits, mlp'}
  (panel,) = (panel for panel in drawn if 'bytes' in panel.x_label)
  assert panel.x_label == 'bytes of all clients, up and down (MB)'
  (line,) = panel.lines
  np.testing.assert_allclose(line.x, 8e-3 / 2 * np.array([2, 4, 6]))
  assert line.family == 'safl'


@pytest.mark.parametrize(('metric', 'name', 'best'), [
  ('test_mse', 'test_mse', 1),
  ('test_exact_match', 'test_exact_match', 2),
  ('min test_regret', 'test_regret', 1),
  ('max test_loss', 'test_loss', 2),
])  # fmt: skip
def test_the_best_is_by_the_name_or_as_it_is_said(metric, name, best):
  """Catches a run that keeps the parameters of its largest error."""
  found, rank = metrics.ranked_by(metric)
  assert (found, rank(1, 2)) == (name, best)


def test_the_perplexity_of_a_model_that_diverged_is_infinite():
  """Catches a warning in place of a number: warnings are errors here."""
  assert metrics.mean('perplexity', np.float32(1e4), np.float32(10)) == np.inf
