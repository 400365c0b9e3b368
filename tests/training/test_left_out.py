"""What a run has left out of its rounds is counted, across starts, and said."""

import json

from fl_sketch import experiment, training
from fl_sketch.rounds import traffic
from fl_sketch.training import log
import numpy as np
import pytest
from runs import SMALL


def test_counts_go_on_from_an_earlier_start():
  """Catches a ledger that forgets them, or padding that fills a cohort."""
  exp = experiment.build(SMALL | {'sampling': 'poisson', 'max_cohort': 5})
  cohort = exp.sample(0)._replace(weight=np.ones(5), ids=np.arange(5))
  padded = cohort._replace(weight=np.arange(5) < 4, ids=np.arange(2, 7))
  ledger = log.empty_ledger(exp)
  for number, (part, rejected) in enumerate([(cohort, 2), (padded, 1)]):
    ledger = traffic.Ledger(
      ledger.dense, ledger.heard, **json.loads(json.dumps(ledger.totals()))
    )
    metrics = {'finite': True, 'uplink_bytes': 4, 'downlink_bytes': 4}
    metrics |= {'rejected_clients': rejected}
    row = log.RunLog(exp, ledger).record(number, part, metrics)
    assert 'full_cohorts' not in row  # which readers of metrics do not know
  assert ledger.left_out == {'rejected_clients': [3, 2], 'full_cohorts': [1, 1]}


@pytest.mark.nightly
def test_a_run_says_it_at_its_end(tmp_path, capsys):
  """Nobody was told of rejected updates and dropouts."""
  fields = SMALL | {'dropout': 0.5, 'byzantine': 0.4, 'attack': 'nan'}
  whole = training.train(experiment.build(fields), tmp_path / 'whole')
  assert traffic.sentence_of(whole.left_out, 4) in capsys.readouterr().err
  summary = json.loads((tmp_path / 'whole' / 'summary.json').read_text())
  assert summary['left_out'] == whole.left_out
  assert whole.left_out.keys() == {'rejected_clients', 'silent_clients'}
  for rounds in 2, 4:
    exp = experiment.build(fields | {'rounds': rounds})
    resumed = training.train(exp, tmp_path / 'resumed')
  assert resumed.left_out == whole.left_out
