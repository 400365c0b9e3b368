"""Parses tf.train.Example, a protocol buffer, without TensorFlow.

An Example has features (1), which are entries (1) of a map from a name (1) to a
feature (2): a list of bytes (1), of floats (2) or of integers (3), whose values
(1) may be packed. Source: tensorflow/core/example/feature.proto.
"""

from collections.abc import Iterator

import numpy as np

Value = bytes | np.ndarray | list[bytes]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse(content: bytes) -> dict[str, Value]:
  """Returns the features of an example by name.

  >>> parse(bytes.fromhex('0a0d0a0b0a017912061a040a02ac02'))
  {'y': array([300])}

  Args:
    content: a serialised tf.train.Example.

  Raises:
    ValueError: it is none.
  """
  try:
    return {
      name: value
      for features in _fields(content, 1)
      for entry in _fields(features, 1)
      for name, value in [_entry(entry)]
    }
  except (IndexError, KeyError, TypeError, ValueError) as error:
    raise ValueError(f'An example is damaged: {error!r}.') from error


def _entry(content) -> tuple[str, Value]:
  fields = dict(_messages(content))
  kinds = dict(_messages(fields[2])) if 2 in fields else {}
  name = fields[1].decode()
  if 1 in kinds:
    return name, list(_fields(kinds[1], 1))
  if 2 in kinds:
    packed = b''.join(_fields(kinds[2], 1, _FIXED32))
    return name, np.frombuffer(packed, '<f4').astype(np.float32)
  numbers = [x for part in _fields(kinds.get(3, b''), 1, _VARINT) for x in part]
  return name, np.array(numbers, np.int64)


def _messages(content) -> Iterator[tuple[int, bytes]]:
  """The fields that are strings of bytes, by number."""
  for number, value in _parts(content):
    if isinstance(value, bytes):
      yield number, value


def _fields(content, wanted: int, packed: int | None = None) -> Iterator:
  """The values of a field; those of numbers may be packed in strings."""
  for number, value in _parts(content):
    if number != wanted:
      continue
    if packed == _VARINT:
      yield [_signed(value)] if isinstance(value, int) else _varints(value)
    else:
      yield value


def _parts(content) -> Iterator[tuple[int, bytes | int]]:
  at = 0
  while at < len(content):
    tag, at = _varint(content, at)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
      value, at = _varint(content, at)
    else:
      if kind == _BYTES:
        size, at = _varint(content, at)
      elif kind in (_FIXED64, _FIXED32):
        size = 8 if kind == _FIXED64 else 4
      else:
        raise ValueError(f'wire type {kind}')
      if at + size > len(content):
        raise ValueError('a field is longer than its message')
      value, at = content[at : at + size], at + size
    yield number, value


def _varint(content, at) -> tuple[int, int]:
  value = shift = 0
  while True:
    byte = content[at]
    value |= (byte & 127) << shift
    at, shift = at + 1, shift + 7
    if byte < 128:
      return value, at
    if shift > 63:
      raise ValueError('an integer of more than 64 bits')


def _varints(content) -> list[int]:
  values, at = [], 0
  while at < len(content):
    value, at = _varint(content, at)
    values.append(_signed(value))
  return values


def _signed(value: int) -> int:
  return value - 2**64 if value >= 2**63 else value
