"""Pieces of a round over messages, as functions to trace.

Both sides trace the protocol of an algorithm from its start up to an exchange,
see `stages`. `programs` compiles the pieces.
"""

import dataclasses
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.rounds import client_step, comms, keys as keys_lib
from fl_sketch.sites import stages
from fl_sketch.sites.exchanges import Facts, completed, zeros
from fl_sketch.utils.types import Key, Params, Tree
import jax
import jax.numpy as jnp
import optax


class Work(NamedTuple):
  """A client's local work in a round."""

  payload: Tree  # of its encoder
  rows: Tree  # state of the encoder, if the payload is taken
  metrics: dict[str, jax.Array]  # as of `wire.NO_METRICS`


@dataclasses.dataclass(eq=False)
class Pieces:
  """The pieces of one algorithm; arguments as of `Programs`."""

  make: rounds.Make
  hp: rounds.Hyper
  params: dataclasses.InitVar[Params]
  key: Key
  schedule: rounds.Schedule | None = None

  def __post_init__(self, params: Params):
    algorithm = self.make(self.hp)
    self.releases = algorithm.releases
    self.private = algorithm.releases > 0
    self.streamed = algorithm.decode is not None
    # Whether clients need what the protocol keeps, beside the parameters.
    self._keeps_links = not self.streamed or algorithm.correction is not None
    self.start = jax.eval_shape(self.first, params)
    self._noise = jax.random.key(0)  # where the result is not used

  def first(self, params: Params) -> rounds.FedState:
    """Return the state of a client before the first round."""
    return rounds.init(self.make(self.hp), params, 1)

  def _algorithm(self, hp, round_index) -> rounds.Algorithm:
    if self.schedule is not None:
      hp = self.schedule(hp, round_index)
    return self.make(hp)

  def _noise_keys(self, noise_key, state):
    if self.private:
      return keys_lib.noise_keys(noise_key, state.round)
    return None

  def _protocol(self, stage, hp, state, lanes, key, noise_key, ids, weight):
    """Run the links up to the broadcast in a stage: (broadcast, state)."""
    algorithm = self._algorithm(hp, state.round)
    keys = keys_lib.round_keys(key, state.round)
    noise = self._noise_keys(noise_key, state)
    if noise is not None:
      noise = keys_lib.for_lanes(noise, ids)
    return algorithm.protocol.update(
      lanes, comms.clear_bills(state.protocol), state.params, comm=stage,
      keys=keys_lib.for_lanes(keys, ids), weight=weight, ids=ids, noise=noise,
      clients_per_step=None,
    )  # fmt: skip

  def _nobody(self, hp, state, lanes=1):
    """(state, payloads or their sum, ids, weights) of absent clients.

    No shared value depends on their rows and payloads, which are zeros.
    """
    algorithm = self._algorithm(hp, state.round)
    rows = rounds.init(algorithm, state.params, lanes)
    state = comms.with_per_client(state, rows)
    payload = self._payload(algorithm, state.params)
    ids, weight = jnp.arange(lanes), jnp.zeros(lanes)
    if not self.streamed:
      nothing = lambda x: jnp.zeros((lanes, *x.shape), x.dtype)
      return state, jax.tree.map(nothing, payload), ids, weight
    keys = keys_lib.round_keys(self.key, state.round)
    keys = keys_lib.for_client(keys, ids[0])

    def term(payload):
      assert algorithm.decode is not None
      decoded = algorithm.decode(keys, payload, state.params)
      return jax.tree.map(lambda x: comms.weighted(x, weight[0]), decoded)

    total = zeros(jax.eval_shape(term, payload))
    size = comms.nbytes(payload)
    sums = comms.LaneSum(total, comms.total_weight(weight), size)
    return state, sums, ids, weight

  def _as_nobody(self, hp, state, key):
    """Return arguments of the protocol, for a result that is shared."""
    full, lanes, *who = self._nobody(hp, state)
    return hp, full, lanes, key, self._noise, *who

  def _sent(self, facts, number, announcements, *args):
    """Return what a client sends in an exchange; None after the last one."""
    stage = stages.Stage(None, announcements, number, facts.flags)
    try:
      self._protocol(stage, *args)
    except stages.Reached as reached:
      return reached.payload
    return None

  def _payload(self, algorithm, params):
    """Return the shapes of an encoder's payload."""

    def encode(params):
      keys = keys_lib.round_keys(self.key, jnp.int32(0))
      moved = (algorithm.update_template or (lambda x: x))(params)
      return client_step.encode_once(algorithm, moved, params, keys)

    return jax.eval_shape(encode, params)

  def _facts(self, hp, state, key):
    """Return the predicates of a round, and which parts of it are due."""
    stage = stages.Stage(sums=None, flags=None)
    self._protocol(stage, *self._as_nobody(hp, state, key))
    due = self._algorithm(hp, state.round).due
    return tuple(stage.asked), due(state.protocol) if due else {}

  def _work(self, hp, state, key, batches, noise_key, client_id, weight):
    algorithm = self._algorithm(hp, state.round)
    keys = keys_lib.round_keys(key, state.round)
    noise = self._noise_keys(noise_key, state)
    correction = algorithm.correction and algorithm.correction(state.protocol)
    first = lambda tree: jax.tree.map(lambda x: x[0], tree)
    client = rounds.Cohort(client_id, weight, batches)
    lane = client, first(state.encode.value), None
    if isinstance(correction, comms.PerClient):
      lane, correction = (*lane[:2], first(correction.value)), None
    start = state.params, correction
    options = None, None, None, None  # the batches are here; nobody attacks
    work = client_step.client_work(algorithm, start, keys, noise, *options)
    payload, _, rows, metrics, accepted = work(lane)
    rows = comms.PerClient(jax.tree.map(lambda x: x[None], rows))
    # Which clients are left out must not depend on what they hold.
    accepted |= self.private
    metrics = {'accepted': accepted.astype(jnp.float32)} | metrics
    return Work(payload, rows, metrics)

  def _as_client(self, hp, state, key, payload, noise_key, client_id, weight):
    """Return arguments of the protocol, with the lane of one client."""
    if self.streamed:
      _, lanes, *_ = self._nobody(hp, comms.drop_per_client(state))
    else:
      lanes = jax.tree.map(lambda x: x[None], payload)
    who = jnp.asarray(client_id)[None], jnp.asarray(weight)[None]
    return hp, state, lanes, key, noise_key, *who

  def _send(self, facts, number, hp, state, key, announcements, *lane):
    args = self._as_client(hp, state, key, *lane)
    return self._sent(facts, number, announcements, *args)

  def _keep(self, facts, hp, state, key, announcements, *lane):
    stage = stages.Stage(None, announcements, None, facts.flags)
    return self._protocol(stage, *self._as_client(hp, state, key, *lane))[1]

  def _redo(self, facts, hp, state, key, announcements):
    args = self._as_nobody(hp, state, key)
    stage = stages.Stage(None, announcements, None, facts.flags)
    shared, links = self._protocol(stage, *args)
    if self._keeps_links:
      state = state._replace(protocol=comms.drop_per_client(links))
    step = rounds.server_step(lambda hp: self._algorithm(hp, state.round))
    return step(hp, shared, state, key)

  def _term(
    self, facts: Facts, number, hp, state, key, sums, announcements, payload,
    noise_key, client_id, weight,
  ):  # fmt: skip
    algorithm = self._algorithm(hp, state.round)
    keys = keys_lib.round_keys(key, state.round)
    keys = keys_lib.for_client(keys, client_id)
    finite = client_step.all_finite(payload)
    if self.private:  # to leave it out would show whose it is
      payload = jax.tree.map(lambda x: jnp.where(finite, x, 0), payload)
    if self.streamed:
      assert algorithm.decode is not None
      like = self._payload(algorithm, state.params)
      payload = completed(payload, like, facts.absent)
      decoded = algorithm.decode(keys, payload, state.params)
    else:
      full, lanes, *who = self._nobody(hp, state)
      stage = stages.Stage(sums, announcements, number, facts.flags)
      try:
        self._protocol(stage, hp, full, lanes, key, noise_key, *who)
      except stages.Reached as reached:
        decoded = reached.decode(keys.client, payload)
    finite &= client_step.all_finite(decoded)
    term = jax.tree.map(lambda x: comms.weighted(x, weight), decoded)
    return term, finite | self.private, optax.tree.norm(decoded)

  def _answer(
    self, facts, stop, hp, state, key, sums, announcements, noise_key, ids,
    weight,
  ):  # fmt: skip
    full, lanes, *_ = self._nobody(hp, state, len(ids))
    if self.streamed:
      (total,), sums = sums, ()
      lanes = lanes._replace(total=total, weight=comms.total_weight(weight))
    stage = stages.Stage(sums, announcements, stop, facts.flags)
    args = stage, hp, full, lanes, key, noise_key, ids, weight
    try:
      _, links = self._protocol(*args)
    except stages.Reached:
      return tuple(stage.announced), None, None
    bill = comms.total_bill(links)
    return tuple(stage.announced), comms.drop_per_client(links), bill
