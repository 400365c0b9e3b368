"""Server side of rounds over messages: checks payloads, sums them, steps.

The server trusts no message, see `Verdict`. A refused message leaves the sum
unchanged, so that the round equals one of `rounds.run_round` without its
sender, up to rounding: payloads are added in the order of their arrival.

The caller provides the transport and closes rounds. One thread calls `receive`.
"""

import collections
import enum
import math
from typing import Any

from fl_sketch import rounds
from fl_sketch.data import availability
from fl_sketch.messaging import client as client_lib, wire
from fl_sketch.rounds import client_step, comms, keys as keys_lib, traffic
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import numpy as np
import optax

Array = jax.Array | np.ndarray


class Verdict(enum.Enum):
  """How the server classified a message; only TAKEN payloads are summed."""

  TAKEN = 'taken'
  CORRUPT = 'corrupt'  # truncated, damaged, or of other shapes or dtypes
  OTHER_RUN = 'other_run'
  LATE = 'late'  # of a round that is closed
  EARLY = 'early'  # of a round that is not open yet
  UNKNOWN_CLIENT = 'unknown_client'  # not selected in this round
  DUPLICATE = 'duplicate'  # the client has answered in this round already
  NOT_FINITE = 'not_finite'
  TOO_LARGE = 'too_large'


class Server:
  """The server of a run: compiled programs, traffic ledger, missing clients.

  Args:
    make: hp -> `Algorithm`, one that `client_lib.check` accepts.
    hp: hyperparameters.
    params: for their types.
    key: key[], the root of all keys of the run.
    run: its `wire.fingerprint`.
    book: the ledger of the bytes of every round, and of every late payload.
    max_norm: the largest Euclidean norm of a decoded payload; None is no bound.
    schedule: see `rounds.run_round`.
    late_rounds: rounds after which a missing payload is no longer billed.

  Attributes:
    missing: (round, client) of the selected clients that did not answer, in the
      last `late_rounds` rounds (stragglers): their payloads are billed once, on
      arrival. To restart a server, keep it with the ledger.

  Raises:
    ValueError: the algorithm is not accepted, or a bound is not positive.
  """

  def __init__(
    self,
    make: rounds.Make,
    hp: Any,
    params: Any,
    key: jax.Array,
    *,
    run: bytes,
    book: traffic.Ledger,
    max_norm: float | None = None,
    schedule: rounds.Schedule | None = None,
    late_rounds: int = 100,
  ):
    client_lib.check(make(hp), params)
    self.late_rounds = checks.count('late_rounds', late_rounds)
    self.hp, self.key, self.run, self.book = hp, key, run, book
    self.like = client_lib.payload_types(make, hp, params)
    self.up = comms.nbytes(self.like)
    self.missing: set[tuple[int, int]] = set()
    self._make: Any = make
    self._bound = math.inf
    self._schedule = schedule or (lambda hp, round_index: hp)
    if max_norm is not None:
      self._bound = checks.positive('max_norm', max_norm)
    zero = jnp.int32(0)
    args = hp, zero, params, key, self.like, zero, jnp.float32(1)
    self.term, *_ = jax.eval_shape(self._term, *args)
    self.add = jax.jit(self._add, donate_argnums=0)
    self.finish = jax.jit(self._finish)

  def open(self, state: rounds.FedState, ids: Array, weight: Array) -> 'Inbox':
    """Open the next round, from the state after the round before.

    Of ids, int32[C], see `rounds.Cohort`, another C compiles the programs anew;
    weights, f32[C], are 0 for clients that are not selected, and for padding.

    Raises:
      ValueError: a client is selected twice: its messages would look the same.
    """
    return Inbox(self, state, ids, weight)

  def _term(self, hp, round_index, params, key, payload, client_id, weight):
    """(weight x decoded payload, whether it is finite, and within bounds)."""
    algorithm = self._make(self._schedule(hp, round_index))
    keys = keys_lib.round_keys(key, round_index)
    client_keys = keys_lib.for_client(keys, client_id)
    decoded = algorithm.decode(client_keys, payload, params)
    finite = client_step.all_finite((payload, decoded))
    small = optax.tree.norm(decoded) <= self._bound
    weight = jnp.where(finite & small, weight, 0)
    term = jax.tree.map(lambda x: comms.weighted(x, weight), decoded)
    return term, finite, small

  def _add(self, total, *args):
    term, finite, small = self._term(*args)
    return jax.tree.map(jnp.add, total, term), finite, small

  def _finish(self, total, hp, state, key, ids, weight):
    """(state after the round, whether it is finite, bill)."""
    hp = self._schedule(hp, state.round)
    keys = keys_lib.for_lanes(keys_lib.round_keys(key, state.round), ids)
    extra = {'keys': keys, 'weight': weight, 'ids': ids, 'noise': None}

    def protocol(total):
      sums = comms.LaneSum(total, weight.sum(), self.up)
      links = comms.clear_bills(state.protocol)
      return self._make(hp).protocol.update(sums, links, state.params, **extra)

    # The server is one shard, whose sum is the total.
    shards = jax.tree.map(lambda x: x[None], total)
    on_one_shard = jax.vmap(protocol, out_axes=None, axis_name=comms.SHARD)
    shared, links = on_one_shard(shards)
    state = state._replace(protocol=links)
    new = rounds.server_step(self._make)(hp, shared, state, key)
    return new, client_step.all_finite(new), comms.total_bill(links)


class Inbox:
  """The server's side of one round, from `Server.open` to `close`.

  The first payload of the right types of a selected client is billed, taken or
  not; later ones of the round are duplicates. A payload that arrives after
  `close` is billed on arrival.

  Attributes:
    counts: `Verdict` -> number of messages.
    received: `Verdict` -> their bytes, with headers.
  """

  def __init__(self, server, state, ids, weight):
    self._server, self._state, self._round = server, state, int(state.round)
    self._ids, self._weight = np.asarray(ids), np.asarray(weight, np.float32)
    selected = np.flatnonzero(self._weight > 0)
    self._slot = {int(self._ids[n]): n for n in selected}
    if len(self._slot) < len(selected):
      ids = self._ids[selected]
      raise ValueError(f'{ids=} must have every client once.')
    self._answered, self._taken = np.zeros((2, len(self._ids)), bool)
    self._total = jax.tree.map(jnp.zeros_like, server.term)
    self._open, self._late = True, 0
    self.counts: collections.Counter[Verdict] = collections.Counter()
    self.received: collections.Counter[Verdict] = collections.Counter()

  def receive(self, message: bytes) -> Verdict:
    """Add a message's payload to the sum, or return why it is refused."""
    verdict = self._classify(message)
    self.counts[verdict] += 1
    self.received[verdict] += len(message)
    return verdict

  def _classify(self, message):
    server = self._server
    try:
      header = wire.unpack(message)
      if header.run != server.run:
        return Verdict.OTHER_RUN
      payload = wire.read(header, server.like)
    except wire.PayloadError:
      return Verdict.CORRUPT
    if header.round > self._round:
      return Verdict.EARLY
    slot = self._slot.get(header.client)
    if header.round == self._round and slot is None:
      return Verdict.UNKNOWN_CLIENT
    if header.round < self._round or not self._open:
      sender = header.round, header.client
      if sender in server.missing:
        server.missing.remove(sender)
        server.book.uplink_total += server.up
        self._late += 1
      return Verdict.LATE
    if self._answered[slot]:
      return Verdict.DUPLICATE
    state = self._state
    start = server.hp, state.round, state.params, server.key
    sender = payload, self._ids[slot], self._weight[slot]
    self._total, finite, small = server.add(self._total, *start, *sender)
    self._answered[slot] = True
    self._taken[slot] = finite & small
    if not finite:
      return Verdict.NOT_FINITE
    return Verdict.TAKEN if small else Verdict.TOO_LARGE

  def close(self) -> tuple[rounds.FedState, dict[str, Any]]:
    """Close the round; payloads that arrive later are late.

    Returns:
      The new state, which is the old one a round later if no payload was taken;
      and the row of `Ledger.charge`, with `round`, `participants`,
      `rejected_clients` and `finite`. Its `late_clients` counts the payloads of
      earlier rounds that were billed in this one.

    Raises:
      ValueError: the round is closed already.
    """
    if not self._open:
      raise ValueError(f'Round {self._round} is closed already.')
    self._open = False
    server = self._server
    weight = np.where(self._taken, self._weight, 0)
    new, finite, bill = server.finish(
      self._total, server.hp, self._state, server.key, self._ids, weight
    )
    if not self._taken.any():
      new = self._state._replace(round=new.round)
      finite = client_step.all_finite(new)
    missing = (self._weight > 0) & ~self._answered
    oldest = self._round - server.late_rounds + 1
    server.missing = {(r, i) for r, i in server.missing if r >= oldest}
    server.missing |= {(self._round, int(i)) for i in self._ids[missing]}
    outcome = np.select(
      [self._answered, missing],
      [availability.PARTICIPATED, availability.DROPPED_OUT],
      availability.NOT_SELECTED,
    )
    bytes_of_one = jax.device_get(bill)
    record = server.book.charge(self._ids, self._weight, *bytes_of_one, outcome)
    return new, record | {
      'round': self._round,
      'participants': int(self._taken.sum()),
      'rejected_clients': int((self._answered & ~self._taken).sum()),
      'late_clients': self._late,
      'finite': bool(finite),
    }
