"""Parses tf.train.Example, a protocol buffer, without TensorFlow.

An Example has features (1), which are entries (1) of a map from a name (1) to a
feature (2): a list of bytes (1), of floats (2) or of integers (3), whose values
(1) may be packed. Source: tensorflow/core/example/feature.proto.
"""

from typing import Any

from fl_sketch.data.natural.records import ODD
import numpy as np

Value = np.ndarray | list[bytes]
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes


def parse(content: bytes) -> dict[str, Value]:
  """Returns the features of a serialised tf.train.Example by name.

  >>> parse(bytes.fromhex('0a0d0a0b0a017912061a040a02ac02'))
  {'y': array([300])}

  Raises:
    ValueError: it is none.
  """
  try:
    return dict(
      _entry(entry)
      for features in _fields(content).get(1, ())
      for entry in _fields(features).get(1, ())
    )
  except (ArithmeticError, *ODD) as error:
    raise ValueError(f'An example is damaged: {error!r}.') from error


def _entry(content) -> tuple[str, Value]:
  entry = _fields(content)
  name, kinds = entry[1][-1].decode(), {}
  if 2 in entry:
    kinds = _fields(entry[2][-1])
  kind = next((k for k in (1, 2, 3) if k in kinds), None)
  values = _fields(kinds[kind][-1]).get(1, []) if kind else []
  if kind == 1:
    return name, values
  if kind == 2:
    return name, np.frombuffer(b''.join(values), '<f4').astype(np.float32)
  packed = lambda x: [x] if isinstance(x, int) else _varints(x)
  numbers = [n for x in values for n in packed(x)]
  return name, np.array(numbers, np.uint64).astype(np.int64)


def _fields(content) -> dict[int, list[Any]]:
  """Parses a protobuf message: field number -> the values of that field."""
  found, at = {}, 0
  while at < len(content):
    tag, at = _varint(content, at)
    kind = tag & 7
    if kind == _VARINT:
      value, at = _varint(content, at)
    else:
      if kind == _BYTES:
        size, at = _varint(content, at)
      elif kind in _FIXED:
        size = _FIXED[kind]
      else:
        raise ValueError(f'wire type {kind}')
      if at + size > len(content):
        raise ValueError('a field is longer than its message')
      value, at = content[at : at + size], at + size
    found.setdefault(tag >> 3, []).append(value)
  return found


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
    values.append(value)
  return values
