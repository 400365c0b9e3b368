"""Non-interference of a federated round, as of `rounds.run_round`."""

from collections.abc import Callable
from typing import Any

from fl_sketch import rounds
from fl_sketch.privacy.noninterference import proof
from fl_sketch.rounds import comms
import jax

PUBLIC, DATA = proof.PUBLIC, proof.DATA


def check_round(
  round_fn: Callable[..., Any],
  hp: Any,
  state: rounds.FedState,
  cohort: rounds.Cohort,
  key: jax.Array,
  data: Any,
  noise_key: jax.Array,
  *,
  unit: str = 'client',
  metrics: bool = False,
  name: str | None = None,
) -> proof.Proof:
  """Shows that a round's public state has clients' data by noise alone.

  The round is of `rounds.run_round` or `scan_rounds`; its arguments may be
  shapes. Clients' data are `data` and the cohort, but for ids and weights where
  `unit` is 'sample', not 'client': who takes part is then public. The state has
  data of one client in each row of its per-client state; `key` is public, and
  `noise_key` secret. `metrics` says whether the round's metrics may have data
  without noise, `name` is of the algorithm, in messages.

  Raises:
    InterferenceError: as of `check`. Per-client state may have the client's own
      data; other state, and the parameters, may have none.
  """
  who = PUBLIC if unit == 'sample' else DATA
  of = cohort._replace(ids=who, weight=who, batches=DATA, outcome=who)
  per_client = lambda x: isinstance(x, comms.PerClient)
  kind = lambda x: proof.CLIENT if per_client(x) else PUBLIC
  kinds = jax.tree.map(kind, state, is_leaf=per_client)
  return proof.check(
    round_fn, hp, state, cohort, key, data, noise_key, name=name,
    inputs=(PUBLIC, kinds, of, PUBLIC, DATA, proof.NOISE),
    outputs=(kinds, DATA if metrics else PUBLIC), result=('state', 'metrics'),
  )  # fmt: skip
