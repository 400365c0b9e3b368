"""Compiled pieces of a round over messages, of both sides.

A round has one exchange or several: clients `work` and `send` payloads, whose
`term`s the server adds up and `answer`s with announcements. From these both
`redo` the server's step.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.rounds import client_step, comms, keys as keys_lib
from fl_sketch.sites.comm import Exchange, Facts, ReachedError, SiteComm
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
  """The programs of one algorithm, each compiled when it is called first.

  Args:
    make: hp -> `Algorithm`, which has a server that sums, or else ValueError.
    hp: hyperparameters.
    params: the model before the first round.
    key: key[], the root of all public keys of the run.
    schedule: see `rounds.run_round`.

  Attributes:
    start: shapes of a client's state before the first round. States of the
      server have no rows of clients, see `comms.drop_per_client`.
    shapes: facts -> the exchanges of a round, in order.
    work: (state, batches, *who) -> `Work`, on batches, leaves [local_steps,
      batch, ...]; `who` is the client's noise key, its id and its weight.
    send: (facts, number, state, announcements, payload, *who) -> what a client
      sends in an exchange, of its encoder's payload.
    keep: (facts, state, announcements, payload, *who) -> the protocol's state
      of a client whose payload was taken.
    term: (facts, state, sums, announcements, payload, *who) -> (weight x
      decoded payload, whether it is finite, its norm); of the server's noise.
    answer: (facts, state, sums, announcements, noise key, ids, weights) ->
      (what the server announces after the last sum, protocol state, bill); of
      absent clients the weight is 0. Protocol state and bill are None before
      the last exchange.
  """

  def __init__(
    self, make: rounds.Make, hp: rounds.Hyper, params: Params, key: Key,
    schedule: rounds.Schedule | None = None,
  ):  # fmt: skip
    self._make, self.hp, self._key, self._schedule = make, hp, key, schedule
    algorithm = make(hp)
    self.releases = algorithm.releases
    self.private = algorithm.releases > 0
    self.streamed = algorithm.decode is not None
    # Whether clients need what the protocol keeps, beside the parameters.
    self._keeps_links = not self.streamed or algorithm.correction is not None
    self.start = jax.eval_shape(self.first, params)
    self._payload, self._total = jax.eval_shape(self._encode, params)
    self._noise = jax.random.key(0)  # where the result is not used
    self.shapes = functools.cache(self._shapes)
    self.work = self._program(self._work)
    self.send = self._program(self._send, 2, 3)
    self.keep = self._program(self._keep, 2)
    self.term = self._program(self._term, 2)
    self.answer = self._program(self._answer, 2)
    self._step = self._program(self._redo, 2)
    self._facts = self._program(self._predicates)
    flags, due = jax.eval_shape(self._facts, comms.drop_per_client(self.start))
    self._varies = bool(flags or due)
    if not self._varies:
      self.shapes(Facts())  # raises

  def _program(self, function, *static):
    compiled = jax.jit(function, static_argnums=static)
    return functools.partial(compiled, self.hp, self._key)

  def first(self, params: Params) -> rounds.FedState:
    """Return the state of a client before the first round."""
    return rounds.init(self._make(self.hp), params, 1)

  def check_noise(self, noise_key: Key | None):
    """Raise ValueError unless there is a noise key where it is needed."""
    if self.private != (noise_key is not None):
      raise ValueError(
        f'Give a noise_key if and only if private={self.private}.'
      )

  def facts(self, state: rounds.FedState) -> Facts:
    """Return what both sides know of the round that starts from a state."""
    if not self._varies:
      return Facts()
    flags, due = jax.device_get(self._facts(comms.drop_per_client(state)))
    absent = (name for name, flag in due.items() if not flag)
    return Facts(tuple(map(bool, flags)), tuple(absent))

  def redo(
    self, facts: Facts, state: rounds.FedState, announcements: Sequence[Tree]
  ) -> rounds.FedState:
    """Return the state after a round, without rows, from its announcements.

    Both sides compile the same program: on machines of one kind its bits are
    equal. What the protocol keeps on the server alone is not in the result.
    """
    return self._step(facts, comms.drop_per_client(state), announcements)

  def _shapes(self, facts):
    state = comms.drop_per_client(self.start)
    client = self._noise, jnp.int32(0), jnp.float32(1)
    cohort = self._noise, jnp.zeros(1, jnp.int32), jnp.zeros(1)
    term = functools.partial(self.term, facts)
    answer = functools.partial(self.answer, facts)
    exchanges, sums, announcements = [], (), ()
    while (payload := self._payload_shapes(facts, len(sums))) is not None:
      args = state, sums, announcements, payload
      total, *_ = jax.eval_shape(term, *args, *client)
      sums = (*sums, total)
      new, *_ = jax.eval_shape(answer, state, sums, announcements, *cohort)
      announcements = (*announcements, *new)
      exchanges.append(Exchange(payload, total, new))
    if not announcements:
      raise ValueError(comms.NO_SERVER)
    return tuple(exchanges)

  def _payload_shapes(self, facts, number):
    """Shapes of what a client sends in an exchange; None after the last."""
    if self.streamed:
      return None if number else facts.without(self._payload)
    nobody = functools.partial(self._as_nobody, self.hp, self._key)
    sent = lambda state: self._payload_of(facts, number, (), *nobody(state))
    start = comms.drop_per_client(self.start)
    return facts.without(jax.eval_shape(sent, start))

  def _encode(self, params):
    """An encoder's payload, and what it is in a sum if it is decoded there."""
    algorithm = self._make(self.hp)
    keys = keys_lib.round_keys(self._key, jnp.int32(0))
    moved = (algorithm.update_template or (lambda x: x))(params)
    payload = client_step.encode_once(algorithm, moved, params, keys)
    if algorithm.decode is None:
      return payload, None
    keys = keys_lib.for_client(keys, jnp.int32(0))
    decoded = algorithm.decode(keys, payload, params)
    return payload, comms.weighted(decoded, jnp.float32(1))

  def _algorithm(self, hp, state) -> rounds.Algorithm:
    schedule = self._schedule
    return self._make(hp if schedule is None else schedule(hp, state.round))

  def _round(self, hp, key, state, noise_key):
    """(algorithm, keys, noise keys or None) of a round."""
    keys, noise = keys_lib.round_keys(key, state.round), None
    if self.private:
      noise = keys_lib.noise_keys(noise_key, state.round)
    return self._algorithm(hp, state), keys, noise

  def _protocol(self, comm, hp, key, state, lanes, noise_key, ids, weight):
    """Run the links up to the broadcast: (broadcast, their state)."""
    algorithm, keys, noise = self._round(hp, key, state, noise_key)
    if noise is not None:
      noise = keys_lib.for_lanes(noise, ids)
    return algorithm.protocol.update(
      lanes, comms.clear_bills(state.protocol), state.params, comm=comm,
      keys=keys_lib.for_lanes(keys, ids), weight=weight, ids=ids, noise=noise,
      clients_per_step=None,
    )  # fmt: skip

  def _no_payloads(self, weight):
    """Payloads of clients, f32[lanes], or their sum, all of them zero."""
    if not self.streamed:
      nothing = lambda x: jnp.zeros((*weight.shape, *x.shape), x.dtype)
      return jax.tree.map(nothing, self._payload)
    size = comms.nbytes(self._payload)
    total, count = comms.zeros(self._total), comms.total_weight(weight)
    return comms.LaneSum(total, count, size)

  def _with_rows(self, hp, state, lanes=1):
    """The state with rows of absent clients, on which nothing depends."""
    rows = rounds.init(self._algorithm(hp, state), state.params, lanes)
    return comms.with_per_client(state, rows)

  def _as_nobody(self, hp, key, state, noise_key=None):
    """Arguments of the protocol, for a result that is shared."""
    state, weight = self._with_rows(hp, state), jnp.zeros(1)
    noise_key = self._noise if noise_key is None else noise_key
    lanes = self._no_payloads(weight)
    return hp, key, state, lanes, noise_key, jnp.arange(1), weight

  def _as_client(self, hp, key, state, payload, noise_key, client_id, weight):
    """Arguments of the protocol, with the lane of one client."""
    lanes = self._no_payloads(jnp.zeros(1))
    if not self.streamed:
      lanes = jax.tree.map(lambda x: x[None], payload)
    who = jnp.asarray(client_id)[None], jnp.asarray(weight)[None]
    return hp, key, state, lanes, noise_key, *who

  def _payload_of(self, facts, number, announcements, *args):
    """What a client sends in an exchange; None after the last one."""
    try:
      self._protocol(SiteComm(None, announcements, number, facts.flags), *args)
    except ReachedError as reached:
      return reached.payload
    return None

  def _predicates(self, hp, key, state):
    """The predicates of a round, and which parts of it are due."""
    comm = SiteComm(sums=None, flags=None)
    self._protocol(comm, *self._as_nobody(hp, key, state))
    due = self._algorithm(hp, state).due
    return tuple(comm.asked), due(state.protocol) if due else {}

  def _work(self, hp, key, state, batches, noise_key, client_id, weight):
    algorithm, keys, noise = self._round(hp, key, state, noise_key)
    correction = algorithm.correction and algorithm.correction(state.protocol)
    first = lambda tree: jax.tree.map(lambda x: x[0], tree)
    client = rounds.Cohort(client_id, weight, batches)
    lane = client, first(state.encode.value), None
    if isinstance(correction, comms.PerClient):
      lane, correction = (*lane[:2], first(correction.value)), None
    start = state.params, correction
    work = client_step.client_work(algorithm, start, keys, noise)
    payload, _, _, (_, rows, metrics, accepted) = work(lane)
    rows = comms.PerClient(jax.tree.map(lambda x: x[None], rows))
    # Which clients are left out must not depend on what they hold.
    accepted |= self.private
    metrics = {'accepted': accepted.astype(jnp.float32)} | metrics
    return Work(payload, rows, metrics)

  def _send(self, hp, key, facts, number, state, announcements, payload, *who):
    if self.streamed:
      return facts.without(payload)
    args = self._as_client(hp, key, state, payload, *who)
    return self._payload_of(facts, number, announcements, *args)

  def _keep(self, hp, key, facts, state, announcements, payload, *who):
    if not comms.client_rows(state.protocol):
      return state.protocol
    comm = SiteComm(None, announcements, None, facts.flags)
    args = self._as_client(hp, key, state, payload, *who)
    return self._protocol(comm, *args)[1]

  def _redo(self, hp, key, facts, state, announcements):
    comm = SiteComm(None, announcements, None, facts.flags)
    shared, links = self._protocol(comm, *self._as_nobody(hp, key, state))
    if self._keeps_links:
      state = state._replace(protocol=comms.drop_per_client(links))
    step = rounds.server_step(lambda hp: self._algorithm(hp, state))
    return step(hp, shared, state, key)

  def _term(
    self, hp, key, facts, state, sums, announcements, payload, noise_key,
    client_id, weight,
  ):  # fmt: skip
    algorithm, keys, _ = self._round(hp, key, state, noise_key)
    keys = keys_lib.for_client(keys, client_id)
    finite = client_step.all_finite(payload)
    if self.private:  # to leave it out would show whose it is
      payload = jax.tree.map(lambda x: jnp.where(finite, x, 0), payload)
    if self.streamed:
      assert algorithm.decode is not None
      payload = facts.completed(payload, self._payload)
      decoded = algorithm.decode(keys, payload, state.params)
    else:
      comm = SiteComm(sums, announcements, len(sums), facts.flags)
      try:
        self._protocol(comm, *self._as_nobody(hp, key, state, noise_key))
      except ReachedError as reached:
        decoded = reached.decode(keys.client, payload)
    norm = optax.tree.norm(decoded)
    finite &= jnp.isfinite(norm)  # nor if its square overflows
    return comms.weighted(decoded, weight), finite | self.private, norm

  def _answer(
    self, hp, key, facts, state, sums, announcements, noise_key, ids, weight
  ):
    state = self._with_rows(hp, state, len(ids))
    lanes, stop = self._no_payloads(weight), len(sums)
    if self.streamed:
      (total,), sums, stop = sums, (), None
      lanes = lanes._replace(total=total)
    comm = SiteComm(sums, announcements, stop, facts.flags)
    args = hp, key, state, lanes, noise_key, ids, weight
    try:
      _, links = self._protocol(comm, *args)
    except ReachedError:
      return tuple(comm.announced), None, None
    bill = comms.total_bill(links)
    return tuple(comm.announced), comms.drop_per_client(links), bill
