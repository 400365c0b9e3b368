"""Wire format of a client's reply: a header, then the bytes of the leaves.

Both sides know the shapes and dtypes of the leaves. The header is overhead that
is not billed: the bill is `comms.nbytes` of the payload. Its CRC-32 detects
corruption, not tampering; authentication is the transport's task. The page
docs/reference/wire_format.md has all that a client in another language needs.
"""

from collections.abc import Mapping
import enum
import hashlib
import json
import struct
from typing import Any, NamedTuple
import zlib

from fl_sketch.rounds import comms
from fl_sketch.utils.types import Payload, Tree
import jax
import numpy as np

MAGIC = b'FLSK'
VERSION = 2
# Magic, version, kind, run, incarnation, round, client, stage, layout, bytes of
# the body; then the crc32 of all this and of the body.
_FIELDS = struct.Struct('<4sHH16sIiiIIQ')
_CRC = struct.Struct('<I')
OVERHEAD = _FIELDS.size + _CRC.size  # bytes
# Sent with every payload and not billed: whether the client's update is finite,
# and the mean training loss before its local steps.
NO_METRICS = {'accepted': np.float32(1), 'train_loss': np.float32(0)}


class Kind(enum.IntEnum):
  """Kinds of replies."""

  PAYLOAD = 0
  NEED = 1  # the round of the client's replica; -1: it needs the state
  REFUSED = 2  # a text says why
  JSON = 3


class PayloadError(ValueError):
  """The bytes are no payload, or not of the expected shapes and dtypes."""


class Message(NamedTuple):
  """A message whose length and checksum are right."""

  kind: int  # a `Kind`
  run: bytes  # 16, see `fingerprint`
  incarnation: int  # of the server that asked: how often it has started
  round: int  # of the run, from 0
  client: int  # the sender by its own account
  stage: int  # of the round's exchanges, from 0
  layout: int  # crc32 of the shapes and dtypes that were sent
  body: memoryview  # the leaves, or a text


def fingerprint(fields: Mapping[str, Any]) -> bytes:
  """Hash a run's fields, values that JSON can hold, to 16 bytes."""
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).digest()[:16]


def encode(
  payload: Payload | bytes,
  *,
  run: bytes,
  round_index: int,
  client_id: int,
  incarnation: int = 0,
  stage: int = 0,
  kind: Kind = Kind.PAYLOAD,
) -> bytes:
  """Encode a payload, a pytree of arrays, or the bytes of a text as a reply."""
  is_text = isinstance(payload, bytes)
  layout = _layout([] if is_text else jax.tree.leaves(payload))
  body = payload if is_text else to_bytes(payload)
  sender = kind, run, incarnation, round_index, client_id, stage
  return seal(MAGIC, _FIELDS, *sender, layout, len(body), body=body)


def to_bytes(tree: Tree) -> bytes:
  """Return the bytes of the leaves, little-endian, one after the other."""
  arrays = [np.asarray(x) for x in jax.tree.leaves(jax.device_get(tree))]
  little = [x.astype(x.dtype.newbyteorder('<'), copy=False) for x in arrays]
  return b''.join(x.tobytes() for x in little)


def unpack(message: bytes) -> Message:
  """Check a message's length and checksum, and split it into its fields.

  PayloadError: it is truncated, damaged, of another version or no message.
  """
  values, body = unseal(message, MAGIC, _FIELDS)
  *sender, layout, size = values
  if len(body) != size:
    raise PayloadError(f'The payload has {len(body)} bytes, not {size}.')
  return Message(*sender, layout=layout, body=body)


def seal(magic: bytes, fields: struct.Struct, *values: Any, body: Any) -> bytes:
  """Join a header, its checksum with the body, and the body."""
  head = fields.pack(magic, VERSION, *values)
  return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def unseal(
  message: bytes, magic: bytes, fields: struct.Struct
) -> tuple[list[Any], memoryview]:
  """Invert `seal`: (values, body); PayloadError if it is damaged."""
  at = fields.size
  if len(message) < at + _CRC.size:
    raise PayloadError(f'A message of {len(message)} bytes is too short.')
  found, version, *values = fields.unpack_from(message)
  if found != magic:
    raise PayloadError(f'A message begins with {found}, not with {magic}.')
  if version != VERSION:
    raise PayloadError(
      f'The sender has {version=} of the wire format, the reader {VERSION}; '
      'use one release.'
    )
  (crc,), content = _CRC.unpack_from(message, at), memoryview(message)
  body = content[at + _CRC.size :]
  if crc != zlib.crc32(body, zlib.crc32(content[:at])):
    raise PayloadError(f'{crc=:#010x} is not that of the message.')
  return values, body


def read(message: Message, like: Payload) -> Payload:
  """Decode the payload of a message: NumPy arrays that share its memory.

  `like` has its shapes and dtypes, as of `jax.eval_shape`. PayloadError: others
  were sent, the size is wrong, or a bool is neither 0 nor 1.

  >>> payload = {'table': np.arange(3, dtype=np.int8)}
  >>> message = encode(payload, run=bytes(16), round_index=0, client_id=7)
  >>> read(unpack(message), payload)
  {'table': array([0, 1, 2], dtype=int8)}
  """
  leaves = jax.tree.leaves(like)
  if message.layout != _layout(leaves):
    raise PayloadError(f'The payload is not of {_describe(leaves)}.')
  return from_bytes(message.body, like)


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
