"""Curves of a sweep along one field: best settings, means over seeds."""

import json

from fl_sketch.runs import sweep_files
from fl_sketch.utils import markdown
import numpy as np
import pytest


def row(point, accuracy, **values):
  row = {'point': point, 'values': values, 'diverged': False}
  return row | {'test_accuracy': accuracy, 'test_loss': 1 - accuracy}


ROWS = [
  row(0, 0.5, b=1, kind='x', lr=0.1, seed=0),
  row(1, 0.7, b=1, kind='x', lr=0.1, seed=1),
  row(2, 0.4, b=1, kind='x', lr=0.3, seed=0),
  row(3, 0.9, b=2, kind='x', lr=0.3, seed=0),
  row(4, 0.8, b=1, kind='y', lr=0.3, seed=0),
]


def test_the_best_of_the_rest_counts_in_the_mean_over_seeds(tmp_path):
  """Catches a mean of the best seeds, and a curve of other settings."""
  curves = sweep_files.lines(ROWS, 'b', ['kind'])
  assert list(curves) == ['kind=x', 'kind=y']
  assert list(curves['kind=x']) == [1, 2]
  best = curves['kind=x'][1]
  assert best.mean == pytest.approx(0.6)
  assert best.error == pytest.approx(0.1)
  assert best.values == {'lr': 0.1}
  assert curves['kind=y'][1].values == {'lr': 0.3}
  text = sweep_files.write_lines(ROWS, tmp_path, 'b', ['kind'])
  assert markdown.cells(text)[1:] == [
    ['kind=x', '0.6 ± 0.1', '0.9'], ['kind=y', '0.8', ''],
  ]  # fmt: skip
  points = json.loads((tmp_path / 'lines.json').read_text())
  assert np.isclose(points['kind=x'][1]['mean'], 0.9)
  with pytest.raises(ValueError, match='depth'):
    sweep_files.lines(ROWS, 'b', ['depth'])


@pytest.mark.covers('S1-Tab1')
def test_test_metrics_are_means_over_the_last_evaluations(tmp_path):
  folder = tmp_path / 'points' / '000'
  folder.mkdir(parents=True)
  records = [
    {'round': i, 'test_loss': i, 'test_accuracy': 2 * i} for i in range(6)
  ]
  records.insert(5, {'round': 4.5})  # a round without evaluation
  text = ''.join(json.dumps(r) + '\n' for r in records)
  (folder / 'metrics.jsonl').write_text(text)
  (mean,) = sweep_files.last_rounds(ROWS[:1], tmp_path, 3)
  assert (mean['test_loss'], mean['test_accuracy']) == (4, 8)
  assert mean['values'] == ROWS[0]['values']
