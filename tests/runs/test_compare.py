"""One call trains and compares methods on a user's own model and clients."""

import fl_sketch
from fl_sketch import runs
from fl_sketch.runs import compare, config, custom, metrics
from fl_sketch.utils import markdown
from launch import configs
import numpy as np
from own_problem import CLIENTS, START, values
import pytest

OWN = (START, values), CLIENTS, CLIENTS[0]
# A table of 2 of the 4 numbers.
FIELDS = {'rounds': 6, 'eval_every': 1, 'sketch': 'srht(size=2)'}
QUIET = FIELDS | {'progress': False}


@pytest.mark.nightly
def test_a_call_is_the_run_of_its_config(tmp_path):
  """Catches a field that is lost, and a stop that forgets what it trained."""
  problem = custom.problem(*OWN)
  fields = {
    'population': 3, 'cohort': 3, 'algorithm': 'safl',
    'server_optimizer': 'adam', 'server_lr': 0.01,
  }  # fmt: skip
  want = runs.train(runs.build(FIELDS | fields, problem=problem))
  told = []
  on_row = lambda row: told.append(row['round']) or len(told) == 3
  stopped = fl_sketch.train(*OWN, folder=tmp_path, on_row=on_row, **QUIET)
  assert told == [0, 1, 2]
  assert not stopped.finished
  got = fl_sketch.train(*OWN, folder=tmp_path, **QUIET)
  assert got.finished
  np.testing.assert_array_equal(got.params['w'], want.params['w'])
  np.testing.assert_array_equal(
    got.metrics['test_loss'], want.metrics['test_loss']
  )


@pytest.mark.nightly
def test_methods_and_their_dense_twin_are_compared_at_equal_bytes(tmp_path):
  """Catches a twin of other seeds or rates, and rows of unequal bytes."""
  pytest.importorskip('matplotlib')
  own = {'sketched': {}, 'averaged': {'algorithm': 'fedavg', 'sketch': None}}
  made = fl_sketch.compare(*OWN, own, folder=tmp_path, **QUIET)
  assert [*made.results] == ['sketched', 'averaged', 'dense']
  twin = {'algorithm': 'fedavg', 'server_optimizer': 'adam', 'sketch': None}
  alone = fl_sketch.train(*OWN, server_lr=0.01, **QUIET | twin)
  rows = {k: metrics.read_metrics(tmp_path / k) for k in made.results}
  last = {k: row[-1]['test_loss'] for k, row in rows.items()}
  assert last['dense'] == alone.row['test_loss']
  least = metrics.total_bytes(rows['sketched'][-1])
  within = [r for r in rows['dense'] if metrics.total_bytes(r) <= least]
  assert len(within) < 6
  head, *_, (name, _, end, *_, at_least) = markdown.cells(made.table)
  assert head[-1] == f'test_loss at {least / 1e6:.3g} MB'
  assert (name, end) == ('dense', metrics.shown(last['dense']))
  assert at_least == metrics.shown(within[-1]['test_loss'])
  over_rounds, over_bytes = made.figure.axes
  labels = [line.get_label() for line in over_bytes.lines]
  assert labels == [line.get_label() for line in over_rounds.lines]
  assert labels == [*made.results]
  assert (tmp_path / 'comparison.png').stat().st_size > 1000


def test_every_public_config_has_a_dense_twin():
  """Catches a compressor or an option of one that the twin keeps."""
  twins = 0
  for name in configs.names():
    fields = configs.load(name).get_config('quick').to_dict()
    if 'algorithm' not in fields:
      continue  # of another command
    c = config.Config.from_mapping(fields | {'sweep': None})
    if c.is_private:
      continue
    twin = compare.dense_twin(c)
    assert (twin.sketch, twin.codec, twin.downlink_codec) == (None, None, None)
    assert (twin.server_lr, twin.client_lr) == (c.server_lr, c.client_lr)
    assert (twin.rounds, twin.cohort, twin.seed) == (c.rounds, c.cohort, c.seed)
    if c.server_optimizer:
      assert twin.server_optimizer == c.server_optimizer
    twins += 1
  assert twins > 10


def test_a_private_method_has_no_twin_and_no_other_has_its_name():
  """Catches a second run that no account counts, and a lost twin."""
  noise = {'noise_multiplier': 1.0, 'clip_norm': 1.0, 'delta': 0.1}
  with pytest.raises(ValueError, match='no dense twin'):
    fl_sketch.compare(*OWN, **QUIET | noise)
  with pytest.raises(ValueError, match='no dense twin'):
    fl_sketch.compare(*OWN, {'public': {}, 'private': noise}, **QUIET)
  with pytest.raises(ValueError, match="none 'dense'"):
    fl_sketch.compare(*OWN, {'dense': {'algorithm': 'safl'}}, **QUIET)
