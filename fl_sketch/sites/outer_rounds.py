"""The programs of outer steps between sites, and the replay of a hub's log."""

from collections.abc import Iterable
import pathlib
from typing import NamedTuple

from fl_sketch.distributed import compressors, outer_steps, workers
from fl_sketch.rounds import comms, keys as keys_lib
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.sites import hub, wire
from fl_sketch.utils.types import Params, Payload, Tree
import jax
import jax.numpy as jnp
import numpy as np
import optax


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
    # Algorithms have more exchanges, or need to know who takes part.
    is_algorithm = compressors.is_algorithm(compressor)
    if is_algorithm or (decode := algorithm.decode) is None:
      raise ValueError(
        f'{compressor=} is not supported between sites; use a codec, a sketch, '
        'or a sketch | a codec.'
      )
    self.outer = outer or outer_steps.NESTEROV
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
    """Initialise the shared state: parameters and states of optimizers."""
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

  def payloads(
    self, number: int, messages: Iterable[bytes]
  ) -> dict[int, Payload]:
    """Decode the messages of a round to a dict of payloads by site.

    PayloadError: a message is damaged, or of another round.
    """
    replies = [*map(wire.decode_reply, messages)]
    if others := {r.round for r in replies} - {number}:
      raise wire.PayloadError(f'Round {number} has payloads of {others=}.')
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
    payloads = rounds.payloads(number, log[number])
    shared, _ = rounds.apply(shared, number, payloads)
  return shared
