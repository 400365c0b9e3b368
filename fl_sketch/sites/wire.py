"""Wire format: requests of a server, replies of clients.

A request names the run, the server's incarnation, the round and the state from
which it starts, and brings what the client lacks of that state. A reply has a
header, then the bytes of the leaves, whose shapes and dtypes both sides know.
Headers are not billed: the bill is `comms.nbytes` of the payload. Their CRC-32
detects corruption, not tampering; authentication is the transport's task. The
page docs/reference/wire_format.md has what a client in another language needs.
"""

import enum
import struct
from typing import NamedTuple
import zlib

from fl_sketch.rounds import comms
from fl_sketch.sites.sealed import PayloadError, seal, unseal
from fl_sketch.utils.types import Payload, Tree
import jax
import numpy as np

REQUEST = b'FLSQ'
# Magic, version, kind, run, incarnation, round, client, stage, digest, weight,
# saved, taken, number of parts; then the crc32 of everything else.
_REQUEST = struct.Struct('<4sHH16sIiiI16sfiiI')
_PART = struct.Struct('<HHiQ')
REPLY = b'FLSK'
# Magic, version, kind, run, incarnation, round, client, stage, layout, bytes of
# the body; then the crc32 of all this and of the body.
_REPLY = struct.Struct('<4sHH16sIiiIIQ')
REQUEST_OVERHEAD, REPLY_OVERHEAD = (x.size + 4 for x in (_REQUEST, _REPLY))
PART_OVERHEAD = _PART.size  # bytes
# Sent with every payload and not billed: whether the client's update is finite,
# and the mean training loss before its local steps.
NO_METRICS = {'accepted': np.float32(1), 'train_loss': np.float32(0)}


class RequestKind(enum.IntEnum):
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


class ReplyKind(enum.IntEnum):
  """Kinds of replies."""

  PAYLOAD = 0
  NEED = 1  # the round of the client's replica; -1: it needs the state
  REFUSED = 2  # a text says why
  JSON = 3


class Reply(NamedTuple):
  """A reply whose length and checksum are right."""

  kind: int  # a `ReplyKind`
  run: bytes  # 16, see `fingerprint`
  incarnation: int  # of the server that asked: how often it has started
  round: int  # of the run, from 0
  client: int  # the sender by its own account
  stage: int  # of the round's exchanges, from 0
  layout: int  # crc32 of the shapes and dtypes that were sent
  body: memoryview  # the leaves, or a text


def encode_request(request: Request) -> bytes:
  """Encode a request.

  >>> request = Request(RequestKind.WORK, bytes(16), 1, 5, 7)
  >>> decode_request(encode_request(request)).round
  5
  """
  *values, parts = request
  body = b''.join(
    _PART.pack(part.kind, part.first, part.round, len(part.body))
    + bytes(part.body)
    for part in parts
  )
  return seal(REQUEST, _REQUEST, *values, len(parts), body=body)


def decode_request(message: bytes) -> Request:
  """Decode a request; PayloadError if it is damaged or of another version."""
  (*values, count), body = unseal(message, REQUEST, _REQUEST)
  request, parts, start = Request(*values), [], 0
  try:
    RequestKind(request.kind)
    for _ in range(count):
      kind, first, number, size = _PART.unpack_from(body, start)
      end = start + PART_OVERHEAD + size
      content = body[start + PART_OVERHEAD : end]
      parts.append(Part(PartKind(kind), first, number, content))
      start = end
  except (struct.error, OverflowError, ValueError) as e:
    raise PayloadError(f'The request is malformed: {e}.') from e
  if start != len(body):
    raise PayloadError(f'{len(body)=} is not {start}, that of all parts.')
  return request._replace(parts=tuple(parts))


def encode_reply(
  payload: Payload | bytes,
  *,
  run: bytes,
  round_index: int,
  client_id: int,
  incarnation: int = 0,
  stage: int = 0,
  kind: ReplyKind = ReplyKind.PAYLOAD,
) -> bytes:
  """Encode a payload, a pytree of arrays, or the bytes of a text as a reply."""
  is_text = isinstance(payload, bytes)
  layout = _layout([] if is_text else jax.tree.leaves(payload))
  body = payload if is_text else to_bytes(payload)
  sender = kind, run, incarnation, round_index, client_id, stage
  return seal(REPLY, _REPLY, *sender, layout, len(body), body=body)


def decode_reply(message: bytes) -> Reply:
  """Check a reply's length and checksum, and split it into its fields.

  PayloadError: it is truncated, damaged, of another version or no reply.
  """
  values, body = unseal(message, REPLY, _REPLY)
  *sender, layout, size = values
  if len(body) != size:
    raise PayloadError(f'The payload has {len(body)} bytes, not {size}.')
  return Reply(*sender, layout=layout, body=body)


def read_payload(reply: Reply, like: Payload) -> Payload:
  """Decode the payload of a reply: NumPy arrays that share its memory.

  `like` has its shapes and dtypes, as of `jax.eval_shape`. PayloadError: others
  were sent, the size is wrong, or a bool is neither 0 nor 1.

  >>> payload = {'table': np.arange(3, dtype=np.int8)}
  >>> message = encode_reply(payload, run=bytes(16), round_index=0, client_id=7)
  >>> read_payload(decode_reply(message), payload)
  {'table': array([0, 1, 2], dtype=int8)}
  """
  leaves = jax.tree.leaves(like)
  if reply.layout != _layout(leaves):
    raise PayloadError(f'The payload is not of {_describe(leaves)}.')
  return from_bytes(reply.body, like)


def to_bytes(tree: Tree) -> bytes:
  """Return the bytes of the leaves, little-endian, one after the other."""
  arrays = [np.asarray(x) for x in jax.tree.leaves(jax.device_get(tree))]
  little = [x.astype(x.dtype.newbyteorder('<'), copy=False) for x in arrays]
  return b''.join(x.tobytes() for x in little)


def from_bytes(body: memoryview, like: Tree) -> Tree:
  """Decode what `to_bytes` has made of the leaves of a tree like `like`.

  PayloadError: it has another size, or a bool that is neither 0 nor 1.
  """
  leaves, treedef = jax.tree.flatten(like)
  if len(body) != comms.nbytes(like):
    raise PayloadError(f'{len(body)} bytes are not {_describe(leaves)}.')
  arrays, start = [], 0
  for leaf in leaves:
    dtype = np.dtype(leaf.dtype)
    end = start + comms.nbytes(leaf)
    raw = np.frombuffer(body[start:end], np.uint8)
    if dtype.kind == 'b' and (raw > 1).any():
      raise PayloadError(f'A bool is sent as {raw.max()}; it must be 0 or 1.')
    x = raw.view(dtype.newbyteorder('<')).astype(dtype, copy=False)
    arrays.append(x.reshape(leaf.shape))
    start = end
  return jax.tree.unflatten(treedef, arrays)


def _describe(leaves) -> str:
  return ' '.join(f'{np.dtype(x.dtype)}{list(x.shape)}' for x in leaves)


def _layout(leaves) -> int:
  return zlib.crc32(_describe(leaves).encode())
