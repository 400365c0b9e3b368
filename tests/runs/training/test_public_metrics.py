"""What rows, figures and files of a private run tell of its clients."""

from fl_sketch import runs
from fl_sketch.rounds import traffic
from fl_sketch.runs import log, sampler, sweep
from harness import rows
import numpy as np
from own_problem import PRIVATE, build
import pytest

from tests.runs.training.test_private_runs import PRIVATE as DIGITS

pytestmark = pytest.mark.xdist_group('public metrics')
COUNTS = {
  'participants', 'rejected_clients', 'late_clients', 'silent_clients',
}  # fmt: skip
BYTES = {
  'uplink_bytes', 'downlink_bytes', 'total_uplink_bytes',
  'total_downlink_bytes',
}  # fmt: skip
FIELDS = PRIVATE | {
  'rounds': 6, 'eval_every': 2, 'checkpoint_every': 2, 'client_holdout': 0.3,
  'dropout': 0.2, 'keep_best': 'test_loss', 'noise_seed': 1,
}  # fmt: skip
LABELS = np.arange(12) % 2


@pytest.mark.nightly
def test_hidden_bytes_are_those_of_a_cohort_by_the_public_seed(tmp_path):
  """Catches totals of another law than that of the run's cohorts."""
  exp = build(FIELDS | {'public_metrics': 'hidden'}, labels=LABELS)
  runs.train(exp, tmp_path, progress=False)
  ledger = traffic.Ledger.empty(3, log.empty_ledger(exp).dense)
  for number, row in enumerate(rows(tmp_path)):
    ids, weight, outcome = sampler.selection(exp.config, number, 0)
    charged = ledger.charge(ids, weight, 16, 16, outcome)
    assert {n: row[n] for n in BYTES} == {n: charged[n] for n in BYTES}


CALIBRATED = {
  'noise_multiplier': None, 'epsilon': 3.0, 'cohort': 3,
  'sampling': 'fixed_size',
}  # fmt: skip


@pytest.mark.parametrize('fields', [{}, CALIBRATED])
def test_updates_have_the_rest_of_the_budget(fields):
  """Catches statistics that are paid for beside the run's epsilon, or not."""
  plain, private = (
    build(FIELDS | fields | more, labels=LABELS)
    for more in ({}, {'public_metrics': 'private'})
  )
  assert plain.guarantee.mechanism == private.guarantee.mechanism
  ratio = private.hyper.noise_multiplier / plain.hyper.noise_multiplier
  assert float(ratio) == pytest.approx(0.95**-0.5)


@pytest.mark.nightly
def test_a_sweep_ranks_its_points_by_test_metrics(tmp_path):
  """Catches a sweep that needs a training loss, or shows that of its points."""
  fields = DIGITS | {'rounds': 2, 'public_metrics': 'hidden'}
  fields |= {'sweep': {'client_lr': (0.1, 0.2)}}
  found = sweep.run(fields, tmp_path, progress=False)
  assert found[0]['test_accuracy'] >= 0
  for path in tmp_path.rglob('*.json*'):
    if path.name != 'config.json':
      names = {'train_loss', *COUNTS}
      assert not [n for n in names if f'"{n}"' in path.read_text()], path
