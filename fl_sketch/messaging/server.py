"""A round whose payloads arrive as messages, from clients that may fail.

The server trusts nothing: what is late, doubled, damaged, of another run or
from somebody it did not ask is refused, and so is what is not finite or longer
than a bound. What is refused leaves the running sum as it was, so that the
round equals one of `rounds.run_round` in which its senders are absent, up to
rounding: payloads are added up as they arrive, and sums of floats depend on
their order.

When to stop waiting is the caller's business, and so is the transport. One
thread calls `Inbox.receive`.
"""

import collections
import enum
import math
from typing import Any

from fl_sketch import rounds
from fl_sketch.data import availability
from fl_sketch.messaging import client as client_lib, wire
from fl_sketch.rounds import (
  client_step,
  comms,
  keys as keys_lib,
  traffic,
)
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import numpy as np
import optax

Array = jax.Array | np.ndarray


class Verdict(enum.Enum):
  """What became of a message; only what is TAKEN counts."""

  TAKEN = 'taken'
  CORRUPT = 'corrupt'  # truncated, damaged, or of other shapes or dtypes
  OTHER_RUN = 'other_run'
  LATE = 'late'  # of a round that is closed
  EARLY = 'early'  # of a round that is not open yet
  UNKNOWN_CLIENT = 'unknown_client'  # not among those asked in this round
  DUPLICATE = 'duplicate'  # this client has answered in this round
  NOT_FINITE = 'not_finite'
  TOO_LARGE = 'too_large'


class Server:
  """What the server of a run keeps from round to round, but for the state.

  Args:
    make: hp -> `Algorithm`, such a one as `client_lib.check` lets pass.
    hp: hyperparameters.
    params: for their types.
    key: key[], the root of all keys of the run.
    run: its `wire.fingerprint`.
    book: enters the bytes of every round, and of every late payload.
    max_norm: the largest Euclidean norm that what a payload stands for may
      have; None is any.
    schedule: as of `rounds.run_round`.

  Attributes:
    missing: (round, client) of everybody who was asked and did not answer:
      their payloads are billed once, when they come. Who restarts a server has
      to keep it beside the ledger.

  Raises:
    ValueError: the algorithm is another, or the bound not above 0.
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
  ):
    client_lib.check(make(hp), params)
    self.hp, self.key, self.run, self.book = hp, key, run, book
    self.like = client_lib.payload_types(make, hp, params)
    self.up = comms.nbytes(self.like)
    self.missing: set[tuple[int, int]] = set()
    programs = _Programs(make, schedule, max_norm, self.up)
    zero, one = jnp.int32(0), jnp.float32(1)
    self.term, *_ = jax.eval_shape(
      programs.term, hp, zero, params, key, self.like, zero, one
    )
    self.add = jax.jit(programs.add, donate_argnums=0)
    self.finish = jax.jit(programs.finish)

  def open(self, state: rounds.FedState, ids: Array, weight: Array) -> 'Inbox':
    """Opens the next round.

    Args:
      state: after the round before.
      ids: int32[C], as of `rounds.Cohort`; with another C programs are compiled
        anew.
      weight: f32[C]; 0 for who is not asked, and for padding.

    Raises:
      ValueError: somebody is asked twice, whose messages look the same.
    """
    return Inbox(self, state, ids, weight)


class Inbox:
  """The server's side of one round, from `Server.open` to `close`.

  A client has answered once a payload of the right types came from it, taken or
  not. That one is billed; others of the round are duplicates, and not billed.
  Nor is what cannot be believed to be a payload of somebody who was asked. What
  comes after `close` is billed when it comes.

  Attributes:
    counts: `Verdict` -> how many messages.
    received: `Verdict` -> their bytes, with headers.
  """

  def __init__(self, server, state, ids, weight):
    self._server, self._state, self._round = server, state, int(state.round)
    self._ids, self._weight = np.asarray(ids), np.asarray(weight, np.float32)
    asked = np.flatnonzero(self._weight > 0)
    self._slot = {int(self._ids[n]): n for n in asked}
    if len(self._slot) < len(asked):
      raise ValueError(f'Expected every client once, got {self._ids[asked]}.')
    self._answered = np.zeros(len(self._ids), bool)
    self._taken = np.zeros(len(self._ids), bool)
    self._total = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), server.term
    )
    self._open, self._late = True, 0
    self.counts: collections.Counter[Verdict] = collections.Counter()
    self.received: collections.Counter[Verdict] = collections.Counter()

  def receive(self, message: bytes) -> Verdict:
    """Adds a message's payload to the sum, or says why not."""
    verdict = self._judge(message)
    self.counts[verdict] += 1
    self.received[verdict] += len(message)
    return verdict

  def _judge(self, message):
    server = self._server
    try:
      found = wire.unpack(message)
      if found.run != server.run:
        return Verdict.OTHER_RUN
      payload = wire.read(found, server.like)
    except wire.PayloadError:
      return Verdict.CORRUPT
    sender = found.round, found.client
    if found.round > self._round:
      return Verdict.EARLY
    if found.round < self._round or not self._open:
      if sender in server.missing:
        server.missing.remove(sender)
        server.book.uplink_total += server.up
        self._late += 1
      return Verdict.LATE
    if found.client not in self._slot:
      return Verdict.UNKNOWN_CLIENT
    if self._answered[self._slot[found.client]]:
      return Verdict.DUPLICATE
    return self._add(payload, self._slot[found.client])

  def _add(self, payload, slot):
    server, state = self._server, self._state
    self._total, finite, small = server.add(
      self._total,
      server.hp,
      state.round,
      state.params,
      server.key,
      payload,
      self._ids[slot],
      self._weight[slot],
    )
    self._answered[slot] = True
    self._taken[slot] = finite & small
    if not finite:
      return Verdict.NOT_FINITE
    return Verdict.TAKEN if small else Verdict.TOO_LARGE

  def close(self) -> tuple[rounds.FedState, dict[str, Any]]:
    """Ends the round, in which whatever comes now is late.

    Returns:
      The new state, which is the old one a round later if nobody was taken; and
      the row of `Ledger.charge`, with `round`, `participants`,
      `rejected_clients` and `finite` as a run has them. Its `late_clients` are
      those whose payloads for rounds before came, and were billed, in this one.

    Raises:
      ValueError: it is closed already.
    """
    if not self._open:
      raise ValueError(f'Expected round {self._round} to be open.')
    self._open = False
    server = self._server
    weight = np.where(self._taken, self._weight, 0)
    new, finite, bill = server.finish(
      self._total, server.hp, self._state, server.key, self._ids, weight
    )
    if not self._taken.any():
      new = self._state._replace(round=new.round)
    return new, self._row(jax.device_get(bill)) | {'finite': bool(finite)}

  def _row(self, bill):
    silent = (self._weight > 0) & ~self._answered
    self._server.missing |= {(self._round, int(i)) for i in self._ids[silent]}
    fate = np.select(
      [self._answered, silent],
      [availability.TAKEN, availability.SILENT],
      availability.NOT_ASKED,
    )
    moved = self._server.book.charge(
      self._ids, self._weight, bill.up, bill.down, fate
    )
    return moved | {
      'round': self._round,
      'participants': int(self._taken.sum()),
      'rejected_clients': int((self._answered & ~self._taken).sum()),
      'late_clients': self._late,
    }


class _Programs:
  """The computations of a server, pure functions to jit."""

  def __init__(self, make, schedule, max_norm, size):
    self._make, self._schedule, self._size = make, schedule, size
    self._bound = math.inf
    if max_norm is not None:
      self._bound = checks.positive('max_norm', max_norm)

  def _hyper(self, hp, round_index):
    return hp if self._schedule is None else self._schedule(hp, round_index)

  def term(self, hp, round_index, params, key, payload, client_id, weight):
    """(weight x what a payload stands for, is it finite, is it in bounds)."""
    algorithm = self._make(self._hyper(hp, round_index))
    keys = keys_lib.round_keys(key, round_index)
    own = keys_lib.for_client(keys, client_id)
    decoded = algorithm.decode(own, payload, params)
    finite = client_step.all_finite((payload, decoded))
    small = optax.tree.norm(decoded) <= self._bound
    weight = jnp.where(finite & small, weight, 0)
    term = jax.tree.map(lambda x: comms.weighted(x, weight), decoded)
    return term, finite, small

  def add(self, total, *args):
    """The sum with one more term, if that is finite and in bounds."""
    term, *found = self.term(*args)
    return jax.tree.map(jnp.add, total, term), *found

  def finish(self, total, hp, state, key, ids, weight):
    """(the state after the round, is it finite, bill)."""
    hp = self._hyper(hp, state.round)
    keys = keys_lib.round_keys(key, state.round)

    def protocol(total):
      return self._make(hp).protocol.update(
        comms.LaneSum(total, weight.sum(), self._size),
        comms.clear_bills(state.protocol),
        state.params,
        keys=keys_lib.for_lanes(keys, ids),
        weight=weight,
        ids=ids,
        noise=None,
      )

    # The sum is that of the only shard there is.
    shards = jax.tree.map(lambda x: x[None], total)
    one = jax.vmap(protocol, out_axes=None, axis_name=comms.SHARD)
    shared, links = one(shards)
    state = state._replace(protocol=links)
    new = rounds.server_step(self._make)(hp, shared, state, key)
    return new, client_step.all_finite(new), comms.total_bill(links)
