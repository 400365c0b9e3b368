"""Keep what a server has announced, for clients that missed rounds."""

from collections.abc import Iterable, Sequence
import pathlib
from typing import NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.rounds import comms
from fl_sketch.sites import replicas, wire
from fl_sketch.sites.programs import Programs
from fl_sketch.sites.wire import PartKind
from fl_sketch.utils import files
from fl_sketch.utils.types import Tree
import numpy as np


class _Round(NamedTuple):
  taken: frozenset[int]  # clients whose payloads were taken
  announcements: tuple[bytes, ...]


class History:
  """The announcements of past rounds, in memory and in a folder.

  Rounds are kept while they are fewer bytes than the state, or are the last in
  which a client took part: it may need them to know its own state. What the
  folder has beyond `rounds_done`, those of the server's state, is removed.

  `open` is a private round whose result no checkpoint has: announcements of its
  exchanges, which must not be made again, and who had answered. ValueError: its
  file is damaged; other damaged files are not used.
  """

  def __init__(
    self,
    programs: Programs,
    rounds_done: int = 0,
    folder: pathlib.Path | None = None,
  ):
    self._programs, self._folder = programs, folder
    self._dense = comms.nbytes(replicas.replicated(programs.start))
    self._rounds: dict[int, _Round] = {}
    self.open: _Round | None = None
    if folder is None:
      return
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob('round_*.bin'):
      number = int(path.stem.removeprefix('round_'))
      is_open = number == rounds_done and programs.private
      if number >= rounds_done and not is_open:
        path.unlink()
        continue
      try:
        self._rounds[number] = _read(path)
      except (OSError, ValueError) as e:
        if is_open:
          raise ValueError(
            f'{path} cannot be read ({e}): private round {number} would be '
            'released twice; restore it.'
          ) from e
        said = f'{path} cannot be read ({e}); it is not used.'
        warnings.warn(said, stacklevel=2)
    self.open = self._rounds.pop(rounds_done, None)

  def add(
    self,
    state: rounds.FedState,
    announcements: Sequence[Tree],
    taken: Iterable[int],
    is_open: bool = False,
  ):
    """Add the round that started from a state, durably."""
    number, facts = int(state.round), self._programs.facts(state)
    bodies = tuple(wire.to_bytes(facts.without(x)) for x in announcements)
    clients = sorted(map(int, taken))
    self._rounds[number] = _Round(frozenset(clients), bodies)
    self.open = self._rounds[number] if is_open else None
    if self._folder is not None:
      contents = wire.to_bytes([np.array(clients, np.int64)]), *bodies
      kind = PartKind.ANNOUNCEMENTS
      parts = tuple(wire.Part(kind, 0, number, x) for x in contents)
      head = wire.RequestKind.GO_ON, bytes(16), 0, number, -1
      content = wire.encode_request(wire.Request(*head, parts=parts))
      files.write(self._path(number), content, durable=True)
    self._forget()

  def closed_by(self, state: rounds.FedState) -> frozenset[int] | None:
    """Return whose payloads the open round was closed with; None: not yet."""
    if self.open is None:
      return None
    exchanges = self._programs.shapes(self._programs.facts(state))
    count = sum(len(exchange.announcements) for exchange in exchanges)
    return self.open.taken if len(self.open.announcements) == count else None

  def taken(self, client: int, before: int) -> int:
    """Return the last round whose payload of a client was taken; -1: none."""
    rounds_ = self._rounds.items()
    numbers = (n for n, x in rounds_ if n < before and client in x.taken)
    return max(numbers, default=-1)

  def announcements(self, number: int, first: int = 0) -> wire.Part:
    """Return the announcements of a round from `first` on."""
    body = b''.join(self._rounds[number].announcements[first:])
    return wire.Part(PartKind.ANNOUNCEMENTS, first, number, body)

  def catch_up(
    self, client: int, at: int, state: rounds.FedState, first: int = 0
  ) -> tuple[wire.Part, ...]:
    """Return the parts of a request that bring a replica from `at` to a state.

    At -1 the client has no replica; it knows `first` announcements of `at`.
    """
    missed = range(at, int(state.round))
    if at >= 0 and all(number in self._rounds for number in missed):
      parts = [self.announcements(n, first if n == at else 0) for n in missed]
      if sum(len(part.body) for part in parts) <= self._dense:
        return tuple(parts)
    body, number = wire.to_bytes(replicas.replicated(state)), int(state.round)
    parts = [wire.Part(PartKind.STATE, 0, number, body)]
    last = self.taken(client, number)
    if last >= 0 and comms.client_rows(self._programs.start.protocol):
      parts.append(self.announcements(last))
    return tuple(parts)

  def _path(self, number: int) -> pathlib.Path:
    assert self._folder is not None
    return self._folder / f'round_{number}.bin'

  def _forget(self):
    """Remove the rounds that nobody needs."""
    last = max(self._rounds)
    needed, size, seen = {last}, 0, frozenset[int]()
    for number in sorted(self._rounds, reverse=True):
      taken, announcements = self._rounds[number]
      size += sum(map(len, announcements))
      if size <= self._dense or taken - seen:
        needed.add(number)
      seen |= taken
    for number in self._rounds.keys() - needed:
      del self._rounds[number]
      if self._folder is not None:
        self._path(number).unlink(missing_ok=True)


def _read(path: pathlib.Path) -> _Round:
  """Read a file of `History.add`: a request with clients and announcements."""
  parts = wire.decode_request(path.read_bytes()).parts
  clients, *bodies = (bytes(part.body) for part in parts)
  taken = np.frombuffer(clients, '<i8').tolist()
  return _Round(frozenset(taken), tuple(bodies))
