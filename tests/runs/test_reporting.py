"""Metrics files are read and drawn, whatever they lack."""

import json
from unittest import mock

from fl_sketch import runs
from fl_sketch.runs import figures, metrics
import numpy as np
import pytest

HUGE = 2**70


def write_run(workdir, *, up=1000):
  rows = []
  for r in range(6):
    row = {'round': r, 'train_loss': 2.0 / (r + 1)}
    row['total_uplink_bytes'] = 25 * up * (r + 1)
    row['total_downlink_bytes'] = 50 * up * (r + 1)
    if r % 2 == 1:
      row['test_loss'] = 2.1 / (r + 1)
      row['test_accuracy'] = 0.9 - 0.1 * abs(r - 3)
    rows.append(row)
  path = workdir / 'metrics.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return rows


def test_reads_what_was_written_but_for_a_last_line_that_is_cut(tmp_path):
  """Catches a resumed run that its last, unfinished line stops."""
  rows = write_run(tmp_path, up=HUGE)
  assert runs.read_metrics(tmp_path) == rows
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"round": 6, "tra')
  assert runs.read_metrics(tmp_path / 'metrics.jsonl') == rows


@pytest.mark.parametrize('garbage', ['{"round"', '7', '\xff\x00 \xfe'])
def test_a_garbage_line_is_named(garbage, tmp_path):
  """Catches rows that are left out without a word."""
  write_run(tmp_path)
  path = tmp_path / 'metrics.jsonl'
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
  rows = write_run(tmp_path)
  config = {'algorithm': 'safl', 'dataset': 'digits', 'model': 'mlp', 'b': None}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  runs.draw_run(tmp_path)
  assert {panel.title for panel in drawn} == {'safl, digits, mlp'}
  (panel,) = (panel for panel in drawn if 'bytes' in panel.x_label)
  assert panel.x_label == 'bytes of all clients, up and down (MB)'
  (line,) = panel.lines
  sums = [runs.total_bytes(row) / 1e6 for row in rows[1::2]]
  np.testing.assert_allclose(line.x, sums)
  assert line.family == 'safl'


@pytest.mark.parametrize(('metric', 'name', 'best'), [
  ('test_mse', 'test_mse', 1),
  ('client_mae_mean', 'client_mae_mean', 1),
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
