"""Wire format of a server's request to a client.

A request names the run, the server's incarnation, the round and the state from
which it starts, and brings what the client lacks of that state.
"""

import enum
import hashlib
import struct
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.rounds import comms
from fl_sketch.sites import wire
from fl_sketch.utils.types import Params, Tree

MAGIC = b'FLSQ'
# Magic, version, kind, run, incarnation, round, client, stage, digest, weight,
# saved, taken, number of parts; then the crc32 of everything else.
_FIELDS = struct.Struct('<4sHH16sIiiI16sfiiI')
_PART = struct.Struct('<HHiQ')
OVERHEAD = _FIELDS.size + 4  # bytes
PART_OVERHEAD = _PART.size


class Kind(enum.IntEnum):
  """Kinds of requests."""

  HELLO = 0
  WORK = 1  # the payload of the first exchange of a round
  GO_ON = 2  # that of a later exchange
  EVALUATE = 3


class PartKind(enum.IntEnum):
  """Kinds of parts of a request."""

  STATE = 0  # parameters, shared state of the protocol, state of the server
  ANNOUNCEMENTS = 1  # what the server announced in a round, from `first` on


class Part(NamedTuple):
  """Something that the client lacks."""

  kind: PartKind
  first: int
  round: int
  body: bytes | memoryview


class Request(NamedTuple):
  """A server's request to a client."""

  kind: int
  run: bytes  # 16
  incarnation: int  # how often the server has started
  round: int
  client: int
  stage: int = 0
  digest: bytes = bytes(16)  # of the state from which the round starts
  weight: float = 1.0
  saved: int = 0  # rounds of the last checkpoint: older states may be dropped
  taken: int = -1  # the client's last round whose payload was taken
  parts: tuple[Part, ...] = ()


def encode(request: Request) -> bytes:
  """Encode a request.

  >>> decode(encode(Request(Kind.WORK, bytes(16), 1, 5, 7))).round
  5
  """
  *values, parts = request
  body = b''.join(
    _PART.pack(part.kind, part.first, part.round, len(part.body))
    + bytes(part.body)
    for part in parts
  )
  return wire.seal(MAGIC, _FIELDS, *values, len(parts), body=body)


def decode(message: bytes) -> Request:
  """Decode a request; PayloadError if it is damaged or of another version."""
  (*values, count), body = wire.unseal(message, MAGIC, _FIELDS)
  request, parts, start = Request(*values), [], 0
  try:
    Kind(request.kind)
    for _ in range(count):
      kind, first, number, size = _PART.unpack_from(body, start)
      end = start + PART_OVERHEAD + size
      content = body[start + PART_OVERHEAD : end]
      parts.append(Part(PartKind(kind), first, number, content))
      start = end
  except (struct.error, OverflowError, ValueError) as e:
    raise wire.PayloadError(f'The request is malformed: {e}.') from e
  if start != len(body):
    raise wire.PayloadError(f'{len(body)=} is not {start}, that of all parts.')
  return request._replace(parts=tuple(parts))


def replicated(state: rounds.FedState) -> Tree:
  """Return what a part of kind STATE has of a `rounds.FedState`."""
  shared = comms.drop_per_client(state)
  return shared.params, shared.protocol, shared.server


def digest(params: Params, server: Tree) -> bytes:
  """Hash the leaves of what clients replicate, by SHA-256, to 16 bytes."""
  return hashlib.sha256(wire.to_bytes((params, server))).digest()[:16]
