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

  Args:
    round_fn: of `rounds.run_round` or `scan_rounds`.
    hp: its argument, or shapes, as are those that follow.
    state: data of one client in each row of its per-client state.
    cohort: data, but for public ids and weights where `unit` is 'sample'.
    key: public.
    data: of clients.
    noise_key: secret.
    unit: 'client', or 'sample': who takes part is then public.
    metrics: whether the round's metrics may have data without noise.
    name: of the algorithm, in messages.

  Raises:
    InterferenceError: as of `check`. Per-client state may have the client's own
      data; other state, and the parameters, may have none.
  """
  who = PUBLIC if unit == 'sample' else DATA
  of = cohort._replace(ids=who, weight=who, batches=DATA, outcome=who)
  kinds = _kinds(state)

  return proof.check(
    round_fn,
    *(hp, state, cohort, key, data, noise_key),
    inputs=(PUBLIC, kinds, of, PUBLIC, DATA, proof.NOISE),
    outputs=(kinds, DATA if metrics else PUBLIC),
    name=name,
    result=('state', 'metrics'),
  )


def _kinds(state):
  """The kind of each part of a round's state."""
  per_client = lambda x: isinstance(x, comms.PerClient)
  kind = lambda x: proof.CLIENT if per_client(x) else PUBLIC
  return jax.tree.map(kind, state, is_leaf=per_client)
