"""Outer steps between sites that train by themselves, exchanged by the host.

A site is a process with a training loop and any mesh of its own. Every H steps
it sends a compressed estimate of what it has moved by, trains on while that
travels, and takes the outer step when the hub says whose payloads are in. No
`jax.distributed`: sites come and go. `hub.Hub` closes the rounds.
"""

import functools
import pathlib
import re
import time
import zlib

from fl_sketch.distributed import compressors, outer_steps
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.sites import mailbox, outer_rounds, sealed, wire
from fl_sketch.utils import checks, files
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import numpy as np
import optax

_STATE = 'state.bin'


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
    silence: seconds in which a message arrives, as of the hub.
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
    silence: float = 3.0, patience: float = 600.0,
    keys: pathlib.Path | None = None,
  ):  # fmt: skip
    outer_steps.check_steps(every, delay, blend)
    checks.count('save_every', save_every)
    self.rounds = outer_rounds.OuterRounds(params, compressor, outer, seed)
    self.number, self.every, self.delay = number, every, delay
    self.shared = self.rounds.start(params)
    self.memory = self.rounds.memory(params)
    self.round = self.step = 0
    self._digest = 0  # of the round before
    # How far from the anchor an earlier start was when it saved its state.
    self._had: Tree | None = None
    self.waited = 0.0  # seconds in which the loop stood still for a round
    self._follow = jax.jit(functools.partial(_follow, blend))
    # Of a payload whose round is open: the memory of the site, if it is in.
    self._pending: Tree | None = None
    self._folder, self._save_every = folder, save_every
    step = jax.make_jaxpr(self.rounds.outer.update)
    options = compressor, self.rounds.like, jax.tree.structure(self.shared)
    options = *options, step(params, self.shared.outer, params)
    self._run = sealed.fingerprint({
      'params': zlib.crc32(wire.to_bytes(params)), 'seed': seed,
      # Functions have an address, which differs by process.
      'options': re.sub(' at 0x[0-9a-f]+', '', str(options)),
    })  # fmt: skip
    self._mail = mailbox.Mailbox(
      address, number, self._run, silence, patience, keys
    )

  def __enter__(self) -> 'Site':
    """Return this site."""
    return self

  def __exit__(self, *_):
    """Leave the hub."""
    self._mail.close()

  def begin(self, kept: Tree = None) -> tuple[Params, Tree]:
    """Compile, join and catch up; return (place, kept), both as last saved.

    `kept` is what the loop keeps beside its parameters, such as the state of
    its optimizer; without a saved state it comes back as it is. The place is a
    copy, which a step may take with donate_argnums. ValueError: `kept` has
    other things than arrays, or what is saved is of another run or site.
    """
    is_plain = lambda x: isinstance(getattr(x, 'dtype', None), np.dtype)
    if wrong := [x for x in jax.tree.leaves(kept) if not is_plain(x)]:
      raise ValueError(f'kept must be of arrays, not of {wrong[0]!r}.')
    place, needed = self.shared.params, -1
    payload, _ = self.rounds.encode(0, self.number, place, place, self.memory)
    self.rounds.apply(self.shared, 0, {self.number: payload})
    self._follow(place, place, place, True)
    saved = self._saved((self.shared, self.memory, place, kept))
    if saved is not None:
      needed, self._digest, state = saved
      self.shared, self.memory, place, kept = state
      self.round = needed
      self._had = _less(place, self.shared.params)
    self._mail.join(needed, self._digest)
    while self._mail.open_round is None or self.round < self._mail.open_round:
      if (found := self._mail.take(0.1)) is not None:
        place = self._land(place, found)
    return jax.tree.map(jnp.copy, place), kept

  def exchange(self, place: Params, kept: Tree = None) -> Params:
    """Count a step of the loop, which is at `place`; return where it goes on.

    ValueError: what this site has sent is not finite.
    """
    self.step += 1
    before = self.round
    if self._pending is not None and self.step % self.every == self.delay:
      place = self._wait(place)
    if self.step % self.every == 0:
      while (found := self._mail.take(0)) is not None:  # rounds of others
        place = self._land(place, found)
      payload, self._pending = self.rounds.encode(
        self.round, self.number, self.shared.params, place, self.memory
      )
      self._mail.send(self.round, payload)
      if not self.delay:
        place = self._wait(place)
    if self.round // self._save_every > before // self._save_every:
      self._save((self.shared, self.memory, place, kept))
    if self._mail.is_wanted:
      self._mail.send_state(self.round, self.shared, self._digest)
    return place

  def _wait(self, place):
    """Block until the hub closes the round of our payload; apply its step."""
    jax.block_until_ready(place)  # what is computed is no waiting
    while self._pending is not None:
      start = time.monotonic()
      found = self._mail.take(1.0)
      self.waited += time.monotonic() - start
      if found is not None:
        place = self._land(place, found)
    return place

  def _land(self, place, found):
    """Take the outer step of a closed round; return where the loop goes on."""
    self._digest = found.digest
    if found.is_state:
      self.shared = _read(wire.decode_reply(found.messages[0]), self.shared)
      self.round, self._had = found.number, None
      return self.shared.params
    before = self.shared.params
    payloads = self.rounds.payloads(self.round, found.messages)
    self.shared, counted = self.rounds.apply(self.shared, self.round, payloads)
    if found.has_own:
      if self.number not in counted:
        raise ValueError('What this site has moved by is not finite.')
      self.memory, self._had = self._pending, None
    elif self.number in counted:
      # A payload of an earlier start had the memory, and how far the site was
      # from the anchor then; what has moved it since is not sent yet.
      self.memory = self.rounds.memory(before)
      if self._had is not None:
        place, self._had = _less(place, self._had), None
    self._pending = None
    self.round += 1
    return self._follow(place, before, self.shared.params, found.has_own)

  def _save(self, state):
    # One that is not finite would end the site at each start.
    if self._folder is not None and all_finite(state):
      self._folder.mkdir(parents=True, exist_ok=True)
      message = wire.encode_reply(
        state, run=self._run, round_index=self.round, client_id=self.number,
        incarnation=self._digest,
      )  # fmt: skip
      files.write(self._folder / _STATE, message, durable=True)

  def _saved(self, like):
    """Return (round, digest, state) as last saved; None without a file."""
    if self._folder is None or not (path := self._folder / _STATE).exists():
      return None
    saved = wire.decode_reply(path.read_bytes())
    if (saved.run, saved.client) != (self._run, self.number):
      raise ValueError(f'{path} is of another run or site; use another folder.')
    return saved.round, saved.incarnation, _read(saved, like)


_less = functools.partial(jax.tree.map, jnp.subtract)


def _read(reply, like):
  """Decode a reply into arrays on the devices that hold those of `like`."""
  found = wire.read_payload(reply, like)
  # An array that jit may move stays one, so that it fits those on a mesh.
  where = lambda x: x.sharding if getattr(x, 'committed', False) else None
  return jax.tree.map(lambda x, old: jax.device_put(x, where(old)), found, like)


def _follow(blend, place, before, after, counts):
  """Return where a site goes on when the anchor moves from before to after."""
  share = lambda x, new: new + blend * (x - new) if blend else new
  keep = lambda x, old, new: x + (new - old)  # what is not in the anchor yet
  own = jax.tree.map(share, place, after)
  return optax.tree.where(counts, own, jax.tree.map(keep, place, before, after))
