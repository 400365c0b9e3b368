"""Non-interference of a federated round, as of `rounds.run_round`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import rounds
from fl_sketch.privacy.noninterference import proof
from fl_sketch.rounds import comms
import jax

PUBLIC, DATA = proof.PUBLIC, proof.DATA


class _Result(NamedTuple):
  state: Any
  metrics: Any


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
    hp, state, cohort, key, data, noise_key: its arguments, or their shapes.
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

  def round_(hp, state, cohort, key, data, noise_key):
    return _Result(*round_fn(hp, state, cohort, key, data, noise_key)[:2])

  return proof.check(
    round_,
    *(hp, state, cohort, key, data, noise_key),
    inputs=(PUBLIC, kinds, of, PUBLIC, DATA, proof.NOISE),
    outputs=_Result(kinds, DATA if metrics else PUBLIC),
    name=name,
    result='',
  )


def _kinds(state):
  """The kind of each part of a round's state."""
  kinds = jax.tree.map(
    lambda x: proof.CLIENT if isinstance(x, comms.PerClient) else PUBLIC,
    state,
    is_leaf=lambda x: isinstance(x, comms.PerClient),
  )
  return kinds
