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
  'PADDING_ID', 'Algorithm', 'Cohort', 'FedState', 'Fetch', 'Hyper', 'Make',
  'RoundLocal', 'Schedule', 'StatefulLocal', 'cohort_mesh', 'cohort_step',
  'federated', 'init', 'pad_cohort', 'place', 'run_client_evaluation',
  'run_evaluation', 'run_lanes', 'run_round', 'scan_rounds', 'server_step',
  'state_of',
]  # fmt: skip
