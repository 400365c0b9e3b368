"""What a run has left out of its rounds is counted across starts."""

import json

from fl_sketch import runs
from fl_sketch.rounds import traffic
from fl_sketch.runs import log
from harness import SMALL
import numpy as np


def test_counts_go_on_from_an_earlier_start():
  """Catches a ledger that forgets them, or padding that fills a cohort."""
  exp = runs.build(SMALL | {'sampling': 'poisson', 'max_cohort': 5})
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
