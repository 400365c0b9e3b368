"""Outer steps between sites that train by themselves, exchanged by the host.

A site is a process with a training loop and any mesh of its own. Every H steps
it sends a compressed estimate of what it has moved by, trains on while that
travels, and takes the outer step when the hub says whose payloads are in. No
`jax.distributed`: sites come and go. `hub.Hub` closes the rounds.
"""

from collections.abc import Iterable
import functools
import pathlib
import time
from typing import NamedTuple
import zlib

from fl_sketch.distributed import compressors, outer_steps, workers
from fl_sketch.rounds import comms, keys as keys_lib
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.sites import hub, mailbox, wire
from fl_sketch.utils import checks, files
from fl_sketch.utils.types import Params, Payload, Tree
import jax
import jax.numpy as jnp
import numpy as np
import optax

_STATE = 'state.bin'


class Shared(NamedTuple):
  """What all sites have in common before a round."""

  params: Params  # the anchor
  protocol: Tree
  server: Tree
  outer: Tree  # the state of the outer optimizer


class OuterRounds:
  """The compiled programs of outer steps; the same bits wherever they run.

  With anchor x, a site at x_i sends C(x - x_i) in round r, with a key of r and
  i. The payloads of a round are decoded and added up in the order of the sites,
  and x <- x + outer(mean). A payload that is not finite counts as absent.
  """

  def __init__(
    self, params: Params, compressor: compressors.Compressor,
    outer: optax.GradientTransformation | None, seed: int,
  ):  # fmt: skip
    make = compressors.mean(compressor)
    shapes = jax.eval_shape(lambda x: x, params)
    algorithm = make(shapes, None)
    if (decode := algorithm.decode) is None:
      raise ValueError(
        f'{compressor=} averages in several exchanges; use a codec, a sketch, '
        'or a sketch | a codec.'
      )
    self.outer = outer or optax.sgd(0.7, momentum=0.9, nesterov=True)
    self.algorithm, self._decode = algorithm, decode
    self._root = jax.random.key(seed)
    self.encode = jax.jit(self._encode)
    self.add = jax.jit(self._add)
    self.step = jax.jit(self._step)
    memory = jax.eval_shape(self.memory, shapes)
    args = 0, 0, shapes, shapes, memory
    self.like: Payload = jax.eval_shape(self._encode, *args)[0]
    keys = jax.eval_shape(self._keys, 0, 0)
    self._decoded = jax.eval_shape(self._decode, keys, self.like, shapes)

  def start(self, params: Params) -> Shared:
    """Return what sites share before the first round."""
    parts = self.algorithm.protocol, self.algorithm.server, self.outer
    return Shared(params, *(part.init(params) for part in parts))

  def memory(self, params: Params) -> Tree:
    """Return what a site keeps of what it could not send, at first."""
    return self.algorithm.encode.init(params)

  def apply(
    self, shared: Shared, number: int, payloads: dict[int, Payload]
  ) -> tuple[Shared, set[int]]:
    """Take the outer step of a round: (the new state, sites that count)."""
    total, count, counted = comms.zeros(self._decoded), np.float32(0), set()
    for site, payload in sorted(payloads.items()):
      args = total, count, number, site, payload, shared.params
      total, new = self.add(*args)
      if new > count:
        counted.add(site)
      count = new
    return self.step(shared, total, count, number), counted

  def payloads(self, messages: Iterable[bytes]) -> dict[int, Payload]:
    """Read the messages of a round: payloads by site."""
    replies = map(wire.decode_reply, messages)
    return {r.client: wire.read_payload(r, self.like) for r in replies}

  def _keys(self, number, site):
    return keys_lib.for_client(keys_lib.round_keys(self._root, number), site)

  def _encode(self, number, site, anchor, place, memory):
    moved = jax.tree.map(jnp.subtract, anchor, place)
    return self.algorithm.encode.update(
      moved, memory, anchor, keys=self._keys(number, site),
      weight=jnp.float32(1), noise=None,
    )  # fmt: skip

  def _add(self, total, count, number, site, payload, like):
    decoded = self._decode(self._keys(number, site), payload, like)
    finite = all_finite(decoded)
    added = jax.tree.map(jnp.add, total, decoded)
    return optax.tree.where(finite, added, total), count + finite

  def _step(self, shared, total, count, number):
    anchor = shared.params
    keys = keys_lib.round_keys(self._root, number)
    lane_sum = comms.LaneSum(total, count, comms.nbytes(self.like))
    comm = workers.Workers((), keys.client[None], 1)
    mean, protocol = self.algorithm.protocol.update(
      lane_sum, shared.protocol, anchor, keys=keys, comm=comm,
      weight=jnp.ones(1), noise=None,
    )  # fmt: skip
    mean, server = self.algorithm.server.update(
      mean, shared.server, anchor, keys=keys
    )
    mean = optax.tree.cast_like(mean, anchor)
    updates, outer = self.outer.update(mean, shared.outer, anchor)
    params = optax.apply_updates(anchor, updates)
    new = Shared(params, comms.clear_bills(protocol), server, outer)
    return optax.tree.where(count > 0, new, shared)


class _Pending(NamedTuple):
  """A payload whose round is not closed."""

  round: int
  step: int  # of the loop, when it was sent
  memory: Tree  # of the site, if the payload is in


class Site:
  """One of the sites that exchange outer steps through a hub.

  Around a training loop of your own::

      with Site('tcp://HOST:7000', 0, params, 'eden(bits=2)', every=16,
                delay=10, blend=0.5, folder=folder) as site:
        place, opt = site.begin(inner.init(params))
        while site.round < 1000:
          place, opt, loss = train_step(place, opt, next(batches))
          place = site.exchange(place, opt)

  `exchange` counts a step; after every H of them it sends, and tau steps later
  it waits for the round and takes the outer step, as `distributed.outer` does
  with the same options. A site that was left out of a round keeps what it has
  moved by, and its memory of what was not sent: its next payload has both. All
  sites begin with the same parameters and options; the hub refuses others.

  Args:
    address: of the hub, as 'tcp://192.168.0.1:7000'.
    number: of this site, which no other has.
    params: where all sites begin.
    compressor: a text, codec or sketch, as of `distributed.mean_over`.
    outer: the optimizer of what all share; None is SGD with rate 0.7 and
      Nesterov momentum 0.9.
    every: H.
    delay: tau, less than H.
    blend: alpha, in [0, 1).
    seed: of the public random draws.
    folder: where the site keeps its state, with which it begins again.
    save_every: rounds between two states that are kept.
    patience: seconds without a word of the hub until TimeoutError.
    keys: folder of site.key_secret and hub.key, certificates of ZeroMQ, where
      the hub has keys.
  """

  def __init__(
    self, address: str, number: int, params: Params,
    compressor: compressors.Compressor,
    outer: optax.GradientTransformation | None = None, *, every: int,
    delay: int = 0, blend: float = 0.0, seed: int = 0,
    folder: pathlib.Path | None = None, save_every: int = 20,
    patience: float = 600.0, keys: pathlib.Path | None = None,
  ):  # fmt: skip
    outer_steps.check_steps(every, delay, blend)
    checks.count('save_every', save_every)
    self.rounds = OuterRounds(params, compressor, outer, seed)
    self.number, self.every, self.delay = number, every, delay
    self.shared = self.rounds.start(params)
    self.memory = self.rounds.memory(params)
    self.round = self.step = 0
    self.waited = 0.0  # seconds in which the loop stood still for a round
    self._follow = jax.jit(functools.partial(_follow, blend))
    self._pending: _Pending | None = None
    self._folder, self._save_every = folder, save_every
    self._run = wire.fingerprint({
      'params': zlib.crc32(wire.to_bytes(params)), 'seed': seed,
      'compressor': repr(compressor),
      'state': str(jax.tree.structure(self.shared)),
    })  # fmt: skip
    self._mail = mailbox.Mailbox(address, number, self._run, patience, keys)

  def __enter__(self) -> 'Site':
    """Return this site."""
    return self

  def __exit__(self, *_):
    """Leave the hub."""
    self._mail.close()

  def begin(self, kept: Tree = None) -> tuple[Params, Tree]:
    """Compile, join and catch up; return (place, kept), both as last saved.

    `kept` is what the loop keeps beside its parameters, such as the state of
    its optimizer; without a saved state it comes back as it is.
    """
    place, needed = self.shared.params, -1
    payload, _ = self.rounds.encode(0, self.number, place, place, self.memory)
    self.rounds.apply(self.shared, 0, {self.number: payload})
    self._follow(place, place, place, True)
    saved = self._saved((self.shared, self.memory, place, kept))
    if saved is not None:
      needed, (self.shared, self.memory, place, kept) = saved
      self.round = needed
    self._mail.join(needed)
    while self._mail.open_round is None or self.round < self._mail.open_round:
      if (found := self._mail.take(0.1)) is not None:
        place = self._land(place, found)
    return place, kept

  def exchange(self, place: Params, kept: Tree = None) -> Params:
    """Count a step of the loop, which is at `place`; return where it goes on.

    ValueError: what this site has sent is not finite.
    """
    self.step += 1
    before = self.round
    if self._pending and self.step >= self._pending.step + self.delay:
      place = self._wait(place)
    if self.step % self.every == 0 and not self._pending:
      while (found := self._mail.take(0)) is not None:  # rounds of others
        place = self._land(place, found)
      payload, memory = self.rounds.encode(
        self.round, self.number, self.shared.params, place, self.memory
      )
      self._pending = _Pending(self.round, self.step, memory)
      self._mail.send(self.round, payload)
      if not self.delay:
        place = self._wait(place)
    if self.round // self._save_every > before // self._save_every:
      self._save((self.shared, self.memory, place, kept))
    if self._mail.is_wanted:
      self._mail.send_state(self.round, self.shared)
    return place

  def _wait(self, place):
    """Land rounds up to the one for which this site has sent."""
    jax.block_until_ready(place)  # what is computed is no waiting
    while self._pending:
      start = time.monotonic()
      found = self._mail.take(1.0)
      self.waited += time.monotonic() - start
      if found is not None:
        place = self._land(place, found)
    return place

  def _land(self, place, found):
    """Take the outer step of a closed round; return where the loop goes on."""
    if found.is_state:
      self.shared = _read(found.messages[0], self.shared)
      self.round = found.number
      return self.shared.params
    before = self.shared.params
    payloads = self.rounds.payloads(found.messages)
    self.shared, counted = self.rounds.apply(self.shared, self.round, payloads)
    if self.number in payloads.keys() - counted:
      raise ValueError('What this site has moved by is not finite.')
    counts = self.number in counted
    if self._pending and self._pending.round == self.round:
      self.memory = self._pending.memory if counts else self.memory
      self._pending = None
    self.round += 1
    return self._follow(place, before, self.shared.params, counts)

  def _save(self, state):
    if self._folder is not None:
      self._folder.mkdir(parents=True, exist_ok=True)
      message = wire.encode_reply(
        state, run=self._run, round_index=self.round, client_id=self.number
      )
      files.write(self._folder / _STATE, message)

  def _saved(self, like):
    """Return (round, state) as last saved; None without a folder or a file."""
    if self._folder is None or not (path := self._folder / _STATE).exists():
      return None
    header = wire.decode_reply(message := path.read_bytes())
    if header.run != self._run:
      raise ValueError(f'{path} is of another run; use another folder.')
    return header.round, _read(message, like)


def _read(message, like):
  found = wire.read_payload(wire.decode_reply(message), like)
  return jax.tree.map(jnp.asarray, found)


def _follow(blend, place, before, after, counts):
  """Return where a site goes on when the anchor moves from before to after."""
  share = lambda x, new: new + blend * (x - new) if blend else new
  keep = lambda x, old, new: x + (new - old)  # what is not in the anchor yet
  own = jax.tree.map(share, place, after)
  return optax.tree.where(counts, own, jax.tree.map(keep, place, before, after))


def replay(
  folder: pathlib.Path, params: Params, compressor: compressors.Compressor,
  outer: optax.GradientTransformation | None = None, *, seed: int = 0,
  until: int | None = None,
) -> Shared:  # fmt: skip
  """Compute what sites share before a round, from the log in a hub's folder.

  `until` is the round; None is the open one. The bits are those of the sites,
  on processors of one kind.
  """
  rounds = OuterRounds(params, compressor, outer, seed)
  shared, log = rounds.start(params), hub.Log(folder / hub.LOG)
  for number in range(len(log) if until is None else until):
    payloads = rounds.payloads(log[number])
    shared, _ = rounds.apply(shared, number, payloads)
  return shared
