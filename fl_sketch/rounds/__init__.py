"""The engine: one federated round as a pure function under `shard_map`.

`algorithm` says what a federated algorithm is, `chain` the kinds of its links,
`transforms` and `aggregation` are these links, and `round` plays it:
`client_step` is the part of one shard, `client_loop` the loop over its clients,
and `comms` holds the collectives. No module here knows an algorithm by name.
"""

from fl_sketch.rounds.algorithm import (
  Algorithm,
  Hyper,
  RoundLocal,
  StatefulLocal,
  federated,
)
from fl_sketch.rounds.chain import state_of
from fl_sketch.rounds.evaluation import (
  run_client_evaluation,
  run_evaluation,
  run_lanes,
)
from fl_sketch.rounds.mesh import cohort_mesh, place
from fl_sketch.rounds.round import (
  PADDING_ID,
  Cohort,
  FedState,
  Fetch,
  Make,
  Schedule,
  cohort_step,
  init,
  pad_cohort,
  run_round,
  scan_rounds,
  server_step,
)

__all__ = [
  'cohort_mesh', 'init', 'place', 'Cohort', 'pad_cohort', 'PADDING_ID',
  'run_round', 'scan_rounds', 'FedState', 'Hyper', 'Algorithm', 'federated',
  'RoundLocal', 'StatefulLocal', 'state_of', 'run_evaluation',
  'run_client_evaluation', 'run_lanes', 'cohort_step', 'server_step', 'Make',
  'Fetch', 'Schedule',
]  # fmt: skip
