"""Messages with a version and a checksum, without JAX.

The CRC-32 detects corruption, not tampering; authentication is the transport's
task.
"""

from collections.abc import Mapping
import hashlib
import json
import struct
from typing import Any
import zlib

VERSION = 3
CRC = struct.Struct('<I')


class PayloadError(ValueError):
  """The bytes are no message, or not of the expected shapes and dtypes."""


def fingerprint(fields: Mapping[str, Any]) -> bytes:
  """Hash a run's fields, values that JSON can hold, to 16 bytes."""
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).digest()[:16]


def seal(magic: bytes, fields: struct.Struct, *values: Any, body: Any) -> bytes:
  """Join a header, its checksum with the body, and the body."""
  head = fields.pack(magic, VERSION, *values)
  return head + CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def unseal(
  message: bytes, magic: bytes, fields: struct.Struct
) -> tuple[list[Any], memoryview]:
  """Invert `seal`: (values, body); PayloadError if it is damaged."""
  at = fields.size
  if len(message) < at + CRC.size:
    raise PayloadError(f'A message of {len(message)} bytes is too short.')
  found, version, *values = fields.unpack_from(message)
  if found != magic:
    raise PayloadError(f'A message begins with {found}, not with {magic}.')
  if version != VERSION:
    raise PayloadError(
      f'The sender has {version=} of the wire format, the reader {VERSION}; '
      'use one release.'
    )
  (crc,), content = CRC.unpack_from(message, at), memoryview(message)
  body = content[at + CRC.size :]
  if crc != zlib.crc32(body, zlib.crc32(content[:at])):
    raise PayloadError(f'{crc=:#010x} is not that of the message.')
  return values, body
