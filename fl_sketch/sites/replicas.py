"""A client's replicas of the server's state, one before each round."""

from collections.abc import Iterator, Mapping
import hashlib
import pathlib
from typing import NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.rounds import comms
from fl_sketch.sites import wire
from fl_sketch.utils import files
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import numpy as np


def replicated(state: rounds.FedState) -> Tree:
  """Return what a part of kind STATE has of a `rounds.FedState`."""
  shared = comms.drop_per_client(state)
  return shared.params, shared.protocol, shared.server


def digest(params: Params, server: Tree) -> bytes:
  """Hash the leaves of what clients replicate, by SHA-256, to 16 bytes."""
  return hashlib.sha256(wire.to_bytes((params, server))).digest()[:16]


class Replica(NamedTuple):
  """The replica before a round, with the rows of the client's own state."""

  state: rounds.FedState
  taken: int  # the last round whose payload the rows count in; -1: none
  digest: bytes  # of what is replicated

  @classmethod
  def of(cls, state: rounds.FedState, taken: int = -1) -> 'Replica':
    """Return the replica of a state."""
    return cls(state, taken, digest(state.params, state.server))


class Store:
  """The replicas of a client in a folder, a file each; None keeps none."""

  def __init__(self, folder: pathlib.Path | None, run: bytes, client: int):
    self._folder, self._run, self._client = folder, run, client

  def save(
    self, replicas: Mapping[int, Replica], number: int, incarnation: int
  ):
    """Write the replica of a round; remove files of other rounds."""
    if self._folder is None:
      return
    self._folder.mkdir(parents=True, exist_ok=True)
    replica = replicas[number]
    numbers = np.array([replica.taken, incarnation], np.int64)
    content = numbers, replica.state
    of = {'run': self._run, 'round_index': number, 'client_id': self._client}
    message = wire.encode_reply(content, **of)
    files.write(self._path(number), message)
    for other in self._numbers() - replicas.keys():
      self._path(other).unlink()

  def load(
    self, start: rounds.FedState
  ) -> Iterator[tuple[int, Replica | None, int]]:
    """Yield (round, replica, incarnation of the server), in order.

    `start` has the shapes of a state. Of a damaged file replica and incarnation
    are None and 0; a folder of another run raises ValueError.
    """
    like = np.zeros(2, np.int64), start
    for number in sorted(self._numbers()):
      path = self._path(number)
      try:
        header = wire.decode_reply(path.read_bytes())
        if header.run != self._run:
          raise ValueError(
            f'{self._folder} has the state of another run; use another folder.'
          )
        numbers, state = wire.read_payload(header, like)
      except (OSError, wire.PayloadError) as e:
        said = f'{path} cannot be read ({e}); it is not used.'
        warnings.warn(said, stacklevel=4)
        yield number, None, 0
        continue
      taken, incarnation = map(int, numbers)
      state = jax.tree.map(jnp.asarray, state)
      yield number, Replica.of(state, taken), incarnation

  def _path(self, number: int) -> pathlib.Path:
    assert self._folder is not None
    return self._folder / f'replica_{number}'

  def _numbers(self) -> set[int]:
    paths = [] if self._folder is None else self._folder.glob('replica_*')
    names = (path.name.rpartition('_')[2] for path in paths)
    return {int(name) for name in names if name.isdecimal()}  # no partial file
