"""Parses tf.train.Example without TensorFlow."""

from typing import Any

from fl_sketch.data.natural.records import ODD
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
import numpy as np

Value = np.ndarray | list[bytes]
# The fields of each message, numbered from 1, as in
# tensorflow/core/example/feature.proto; all repeated: a missing one is empty.
_MESSAGES = {
  'Bytes': {'value': 'TYPE_BYTES'}, 'Floats': {'value': 'TYPE_FLOAT'},
  'Integers': {'value': 'TYPE_INT64'},
  'Feature': {'bytes': 'Bytes', 'floats': 'Floats', 'integers': 'Integers'},
  'Entry': {'name': 'TYPE_BYTES', 'feature': 'Feature'},
  'Features': {'entries': 'Entry'}, 'Example': {'features': 'Features'},
}  # fmt: skip


def parse(content: bytes) -> dict[str, Value]:
  """Returns the features of a serialised tf.train.Example by name.

  >>> parse(bytes.fromhex('0a0d0a0b0a017912061a040a02ac02'))
  {'y': array([300])}

  Raises:
    ValueError: it is none.
  """
  try:
    (features,) = _EXAMPLE.FromString(content).features
    return {x.name[-1].decode(): _value(x.feature) for x in features.entries}
  except (DecodeError, *ODD) as error:
    raise ValueError(f'An example is damaged: {error!r}.') from error


def _value(feature) -> Value:
  for x in feature[-1:]:
    if x.bytes:
      return [*x.bytes[-1].value]
    if x.floats:
      return np.array(x.floats[-1].value, np.float32)
    if x.integers:
      return np.array(x.integers[-1].value, np.int64)
  return np.array([], np.int64)


def _example() -> Any:
  file = descriptor_pb2.FileDescriptorProto(name='example.proto')
  for message, fields in _MESSAGES.items():
    added = file.message_type.add(name=message)
    for number, (name, kind) in enumerate(fields.items(), start=1):
      of = {'type' if kind.startswith('TYPE_') else 'type_name': kind}
      added.field.add(name=name, number=number, label='LABEL_REPEATED', **of)
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(pool.FindMessageTypeByName('Example'))


_EXAMPLE = _example()
