"""Compiled pieces of a round over messages, of both sides.

A round has one exchange or several: clients send payloads, the server sums them
and announces. `work` and `send` make a client's payloads, `term` and `answer`
sum them and make the announcements, `redo` is the server's step, which clients
do again, and `keep` is the state of a client after a round in which its payload
was taken. See `stages`.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.messaging.exchanges import (
  Exchange,
  Facts,
  completed,
  without,
  zeros,
)
from fl_sketch.rounds import client_step, comms, keys as keys_lib, stages
from fl_sketch.utils.types import Key, Params, Tree
import jax
import jax.numpy as jnp
import optax


class Work(NamedTuple):
  """A client's local work in a round."""

  payload: Tree  # of its encoder
  rows: Tree  # state of the encoder, if the payload is taken
  metrics: dict[str, jax.Array]  # as of `wire.NO_METRICS`


class Programs:
  """The compiled functions of one algorithm.

  Args:
    make: hp -> `Algorithm`.
    hp: hyperparameters.
    params: the model before the first round.
    key: key[], the root of all public keys of the run.
    schedule: see `rounds.run_round`.

  Attributes:
    start: shapes of a client's state before the first round. States of the
      server have no rows of clients, see `comms.drop_per_client`.

  Raises:
    ValueError: the algorithm has no server that sums.
  """

  def __init__(
    self,
    make: rounds.Make,
    hp: rounds.Hyper,
    params: Params,
    key: Key,
    schedule: rounds.Schedule | None = None,
  ):
    self.hp, self.key = hp, key
    self._make = make
    self._schedule = schedule or (lambda hp, round_index: hp)
    algorithm = make(hp)
    self.releases = algorithm.releases
    self.private = algorithm.releases > 0
    self.streamed = algorithm.decode is not None
    # Whether clients need what the protocol keeps, beside the parameters.
    self._keeps_links = not self.streamed or algorithm.correction is not None
    self.start = jax.eval_shape(self.first, params)
    self._noise = jax.random.key(0)  # where the result is not used
    self._jit = functools.cache(
      lambda name, *static: jax.jit(
        functools.partial(getattr(self, name), *static)
      )
    )
    self.shapes = functools.cache(self._shapes)
    flags, due = jax.eval_shape(self._facts, *self._before(self.start))
    self._varies = bool(flags or due)
    if not self._varies:
      self.shapes(Facts())  # raises

  def first(self, params: Params) -> rounds.FedState:
    """Return the state of a client before the first round."""
    return rounds.init(self._make(self.hp), params, 1)

  def _before(self, state):
    """Return the arguments of all programs that both sides know."""
    return self.hp, comms.drop_per_client(state), self.key

  def _algorithm(self, hp, round_index) -> rounds.Algorithm:
    return self._make(self._schedule(hp, round_index))

  def _protocol(self, stage, hp, state, lanes, key, noise_key, ids, weight):
    """Run the links up to the broadcast in a stage: (broadcast, state)."""
    algorithm = self._algorithm(hp, state.round)
    keys, noise = keys_lib.round_keys(key, state.round), None
    if self.private:
      noise = keys_lib.noise_keys(noise_key, state.round)
      noise = keys_lib.for_lanes(noise, ids)
    with stages.inside(stage):
      return algorithm.protocol.update(
        lanes, comms.clear_bills(state.protocol), state.params,
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

  def _payload(self, algorithm, params):
    """Return the shapes of an encoder's payload."""

    def encode(params):
      keys = keys_lib.round_keys(self.key, jnp.int32(0))
      moved = (algorithm.update_template or (lambda x: x))(params)
      return client_step.encode_once(algorithm, moved, params, keys)

    return jax.eval_shape(encode, params)

  # What both sides know.

  def _facts(self, hp, state, key):
    stage = stages.Stage(sums=None, flags=None)
    full, lanes, *who = self._nobody(hp, state)
    self._protocol(stage, hp, full, lanes, key, self._noise, *who)
    due = self._algorithm(hp, state.round).due
    return tuple(stage.asked), due(state.protocol) if due else {}

  def facts(self, state: rounds.FedState) -> Facts:
    """Return what both sides know of the round that starts from a state."""
    if not self._varies:
      return Facts()
    flags, due = jax.device_get(self._jit('_facts')(*self._before(state)))
    absent = (name for name, flag in due.items() if not flag)
    return Facts(tuple(map(bool, flags)), tuple(absent))

  def _shapes(self, facts: Facts) -> tuple[Exchange, ...]:
    """Return the exchanges of a round, in order."""
    hp, state, key = self._before(self.start)
    who = self._noise, jnp.int32(0), jnp.float32(1)

    def sent(number):
      def fn(hp, state, key):
        full, lanes, *nobody = self._nobody(hp, state)
        stage = stages.Stage(None, (), number, facts.flags)
        try:
          self._protocol(stage, hp, full, lanes, key, self._noise, *nobody)
        except stages.Reached as reached:
          return reached.payload
        return None

      return jax.eval_shape(fn, hp, state, key)

    if self.streamed:
      payloads = [self._payload(self._make(hp), state.params)]
    else:
      payloads = []
      while (payload := sent(len(payloads))) is not None:
        payloads.append(payload)
    exchanges, sums, announcements = [], (), ()
    for number, payload in enumerate(payloads):
      payload = without(payload, facts.absent)
      term = functools.partial(self._term, facts, number)
      args = hp, state, key, sums, announcements
      total, *_ = jax.eval_shape(term, *args, payload, *who)
      sums = (*sums, total)
      stop = None if number == len(payloads) - 1 else number + 1
      answer = functools.partial(self._answer, facts, stop)
      cohort = self._noise, jnp.zeros(1, jnp.int32), jnp.zeros(1)
      args = hp, state, key, sums, announcements
      new, *_ = jax.eval_shape(answer, *args, *cohort)
      announcements = (*announcements, *new)
      exchanges.append(Exchange(payload, total, new))
    if not announcements:
      raise ValueError(comms.NO_SERVER)
    return tuple(exchanges)

  # Clients.

  def _work(self, hp, state, key, batches, noise_key, client_id, weight):
    algorithm = self._algorithm(hp, state.round)
    keys, noise = keys_lib.round_keys(key, state.round), None
    if self.private:
      noise = keys_lib.noise_keys(noise_key, state.round)
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

  def work(self, state, batches, noise_key, client_id, weight) -> Work:
    """Do a client's local work on batches, leaves [local_steps, batch, ...]."""
    args = self.hp, state, self.key, batches, noise_key, client_id, weight
    return self._jit('_work')(*args)

  def _as_client(self, stage, hp, state, key, payload, noise_key, who, weight):
    """Run the protocol with the lane of one client."""
    if self.streamed:
      _, lanes, *_ = self._nobody(hp, comms.drop_per_client(state))
    else:
      lanes = jax.tree.map(lambda x: x[None], payload)
    lane = jnp.asarray(who)[None], jnp.asarray(weight)[None]
    return self._protocol(stage, hp, state, lanes, key, noise_key, *lane)

  def _send(self, facts, number, hp, state, key, announcements, *lane):
    stage = stages.Stage(None, announcements, number, facts.flags)
    try:
      self._as_client(stage, hp, state, key, *lane)
    except stages.Reached as reached:
      return reached.payload
    raise AssertionError(f'There is no exchange {number}.')

  def send(
    self, facts, number, state, announcements, payload, noise_key, client_id,
    weight,
  ) -> Tree:  # fmt: skip
    """Return what a client sends in an exchange, of its encoder's payload."""
    if self.streamed:
      return without(payload, facts.absent)
    args = self.hp, state, self.key, tuple(announcements), payload, noise_key
    return self._jit('_send', facts, number)(*args, client_id, weight)

  def _keep(self, facts, hp, state, key, announcements, *lane):
    stage = stages.Stage(None, announcements, None, facts.flags)
    return self._as_client(stage, hp, state, key, *lane)[1]

  def keep(
    self, facts, state, announcements, payload, noise_key, client_id, weight
  ):
    """Return the protocol's state of a client that took part in a round."""
    if not comms.has_client_state(state.protocol):
      return state.protocol
    args = self.hp, state, self.key, tuple(announcements), payload, noise_key
    return self._jit('_keep', facts)(*args, client_id, weight)

  # Both sides.

  def _redo(self, facts, hp, state, key, announcements):
    full, lanes, *who = self._nobody(hp, state)
    stage = stages.Stage(None, announcements, None, facts.flags)
    args = stage, hp, full, lanes, key, self._noise, *who
    shared, links = self._protocol(*args)
    if self._keeps_links:
      state = state._replace(protocol=comms.drop_per_client(links))
    step = rounds.server_step(lambda hp: self._algorithm(hp, state.round))
    return step(hp, shared, state, key)

  def redo(self, facts, state, announcements) -> rounds.FedState:
    """Return the state after a round, without rows, from its announcements.

    Both sides compile the same program: on machines of one kind its bits are
    equal. What the protocol keeps on the server alone is not in the result.
    """
    return self._jit('_redo', facts)(*self._before(state), tuple(announcements))

  # The server.

  def _term(
    self, facts, number, hp, state, key, sums, announcements, payload,
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

  def term(self, facts, number, state, sums, announcements, payload, *who):
    """(weight x decoded payload, whether it is finite, its Euclidean norm).

    `who` are the server's noise key, the client's id and its weight.
    """
    args = *self._before(state), tuple(sums), tuple(announcements)
    return self._jit('_term', facts, number)(*args, payload, *who)

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

  def answer(
    self, facts, number, state, sums: Sequence[Tree], announcements, noise_key,
    ids, weight,
  ):  # fmt: skip
    """(what the server announces after an exchange, protocol state, bill).

    The last two are None before the last exchange. A client that did not send
    has weight 0.
    """
    stop = None if number == len(self.shapes(facts)) - 1 else number + 1
    args = *self._before(state), tuple(sums), tuple(announcements)
    return self._jit('_answer', facts, stop)(*args, noise_key, ids, weight)
