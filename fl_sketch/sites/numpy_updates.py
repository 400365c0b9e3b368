"""Compressed updates of any framework: dicts of arrays, in NumPy alone."""

from collections.abc import Mapping
import json
import math
import struct
from typing import Any, NamedTuple

from fl_sketch.sites import sealed
from fl_sketch.sites.numpy_codecs import Layout
from fl_sketch.sites.numpy_compressor import Compressor, decode, encode
import numpy as np

Arrays = Mapping[str, np.ndarray]
MAGIC = b'FLSU'
# Magic, version, seed, round, sender, bytes of the description; then the crc32
# of everything else.
HEADER = struct.Struct('<4sHIiII')
_KINDS, _LARGE = 'fiub', 4096  # of dtypes; numbers


class Opened(NamedTuple):
  """A parsed message: its header fields, and its body with the arrays."""

  seed: int
  number: int  # of a round, or a version
  sender: int
  compressor: str
  like: dict[str, np.ndarray]  # of the dtypes and shapes of the arrays
  body: memoryview  # of the arrays


class Updates:
  """Encodes model updates, dicts of arrays, as compressed messages, and back.

  Arrays of floats with two axes or 4,096 numbers are one vector, in the order
  of their sorted names, which the compressor makes small; others travel as they
  are. The compressor is a text as of `distributed.mean_over`: a codec, a
  sketch, or a sketch | a codec of its tables. Keys are those of the wire
  format. Both sides know text, seed, and the names and shapes of the arrays.

  >>> updates, x = Updates('eden(bits=2)'), {'w': np.ones((2, 8))}
  >>> message = updates.encode(x, number=0, sender=3)
  >>> updates.decode(message, like=x)['w'].dtype
  dtype('float64')

  ValueError: the text names no codec or sketch, or an option that it lacks; or
  the seed is not in 0...2^32 - 1.
  """

  def __init__(self, compressor: str, *, seed: int = 0):
    if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
      raise ValueError(f'{seed=} must be in 0...2^32 - 1.')
    self._text, self._seed = compressor, seed
    self.compressor = Compressor(compressor)
    self.feedback = self.compressor.feedback
    self.memory: dict[str, np.ndarray] = {}  # what feedback has not sent yet

  def encode(self, arrays: Arrays, *, number: int, sender: int) -> bytes:
    """Encode an update in a round; with error feedback also what was not sent.

    ValueError: a float is not finite, or an array has neither floats nor whole
    numbers.
    """
    return self._encoded(arrays, number, sender, decodes=self.feedback)[0]

  def encode_decoded(
    self, arrays: Arrays, *, number: int, sender: int
  ) -> tuple[bytes, dict[str, np.ndarray]]:
    """Encode an update; return the message, and what a receiver decodes."""
    message, x = self._encoded(arrays, number, sender, decodes=True)
    return message, {**arrays, **_split(x, arrays)}

  def _encoded(self, arrays, number, sender, decodes):
    x, others = _vector(arrays), _others(arrays).values()
    if not _are_finite(x, *others):
      finite = lambda k: _are_finite(arrays[k], _vector({k: arrays[k]}))
      name = next(k for k in arrays if not finite(k))
      raise ValueError(f'{name} is not finite in float32.')
    self._add_memory(x, arrays)
    leaves, decoded = [], np.zeros(0, np.float32)
    if x.size:
      stages = self.compressor.stages(x.size, self._seed, number, sender)
      leaves += encode(stages, x)
      if decodes:
        decoded = decode(stages, leaves)
      if self.feedback:
        x -= decoded
        self.memory |= _parts(x, arrays)
    del x  # of a large model
    leaves += others
    kinds = {k: [x.dtype.name, x.shape] for k, x in arrays.items()}
    text = json.dumps([self._text, kinds]).encode()
    body = b''.join([text, *map(_little, leaves)])
    del leaves
    values = self._seed, number, sender, len(text)
    return sealed.seal(MAGIC, HEADER, *values, body=body), decoded

  def _add_memory(self, x, arrays):
    """Move the memory of these arrays to a vector; other shapes are dropped."""
    for name, part in _parts(x, arrays).items():
      kept = self.memory.pop(name, None)
      if kept is not None and kept.shape == part.shape:
        part += kept

  def decode(self, message: bytes, like: Arrays) -> dict[str, np.ndarray]:
    """Decode an update of arrays of these names and shapes.

    PayloadError: it is damaged, not finite, or of other arrays, another
    compressor, seed or version.
    """
    return self.decode_opened(opened(message), like)

  def decode_opened(self, message: Opened, like: Arrays) -> dict[str, Any]:
    """Decode the arrays of a parsed message; errors are as of `decode`."""
    shapes = lambda arrays: {k: x.shape for k, x in arrays.items()}
    own, theirs = (
      (self._text, self._seed, shapes(like)),
      (message.compressor, message.seed, shapes(message.like)),
    )
    if own != theirs:
      raise sealed.PayloadError(
        f'Expected an update of {own!s:.200}, got one of {theirs!s:.200}.'
      )
    like = message.like
    d, others = sum(x.size for x in _compressed(like).values()), _others(like)
    to = message.seed, message.number, message.sender
    try:
      stages = self.compressor.stages(d, *to)
    except ValueError as e:
      raise sealed.PayloadError(f'The update is of {d} numbers. {e}') from e
    layout = stages[-1].layout if stages else []
    leaves = [(x.dtype.name, x.shape) for x in others.values()]
    leaves = _read(message.body, [*layout, *leaves])
    with np.errstate(all='ignore'):  # what is not finite is refused here
      x = decode(stages, leaves[: len(layout)])
    if not _are_finite(x, *leaves[len(layout) :]):
      raise sealed.PayloadError('The update is not finite.')
    others = dict(zip(others, leaves[len(layout) :], strict=True))
    found = others | _split(x, like)
    return {name: found[name] for name in like}


def opened(message: bytes) -> Opened:
  """Verify the checksum of a message, and parse it; else PayloadError."""
  (*values, end), body = sealed.unseal(message, MAGIC, HEADER)
  try:
    compressor, kinds = json.loads(bytes(body[:end]))
    like = {}
    for name, (dtype, shape) in kinds.items():
      if np.dtype(dtype).kind not in _KINDS:
        raise ValueError(f'{name} is of {dtype}')
      like[name] = np.broadcast_to(np.zeros((), dtype), shape)
  except (
    AttributeError, OverflowError, RecursionError, TypeError, ValueError
  ) as e:  # fmt: skip
    raise sealed.PayloadError(f'The description is malformed: {e}.') from e
  seed, number, sender = values
  return Opened(seed, number, sender, compressor, like, body[end:])


def is_compressed(x: np.ndarray) -> bool:
  """Return whether an array is one of those that a compressor makes small."""
  # Biases and statistics of batches are few, and of another size than weights,
  # whose noise they would be.
  return x.dtype.kind == 'f' and (x.ndim > 1 or x.size >= _LARGE)


def _compressed(arrays: Arrays) -> dict[str, np.ndarray]:
  return {k: x for k, x in sorted(arrays.items()) if is_compressed(x)}


def _others(arrays: Arrays) -> dict[str, np.ndarray]:
  others = {k: x for k, x in sorted(arrays.items()) if not is_compressed(x)}
  if wrong := [k for k, x in others.items() if x.dtype.kind not in _KINDS]:
    raise ValueError(f'{wrong[0]} has neither floats nor whole numbers.')
  return others


def _vector(arrays: Arrays) -> np.ndarray:
  parts = [np.ravel(x) for x in _compressed(arrays).values()]
  with np.errstate(over='ignore'):  # what float32 cannot hold is refused
    return np.concatenate([[], *parts], dtype=np.float32, casting='same_kind')


def _are_finite(*arrays: np.ndarray) -> bool:
  return all(np.isfinite(x).all() for x in arrays)


def _parts(x: np.ndarray, like: Arrays) -> dict[str, np.ndarray]:
  """Split a vector into float32 views, shaped like the compressed arrays."""
  found, start = {}, 0
  for name, array in _compressed(like).items():
    found[name] = x[start : start + array.size].reshape(array.shape)
    start += array.size
  return found


def _split(x: np.ndarray, like: Arrays) -> dict[str, np.ndarray]:
  """Split a decoded vector into the compressed arrays of `like`."""
  parts = _parts(x, like).items()
  return {k: part.astype(like[k].dtype, copy=False) for k, part in parts}


def _little(x: np.ndarray) -> memoryview:
  return np.asarray(x, x.dtype.newbyteorder('<')).reshape(-1).view('u1').data


def _read(body: memoryview, layout: Layout) -> list[np.ndarray]:
  """Read the arrays of a body; PayloadError if it has another size."""
  wide = {'bfloat16': 'uint16'}  # which NumPy lacks
  kinds = [(np.dtype(wide.get(name, name)), shape) for name, shape in layout]
  sizes = [kind.itemsize * math.prod(shape) for kind, shape in kinds]
  if len(body) != sum(sizes):
    raise sealed.PayloadError(f'{len(body)=} is not {sum(sizes)}.')
  leaves, start = [], 0
  for (kind, shape), size in zip(kinds, sizes, strict=True):
    raw = np.frombuffer(body[start : start + size], kind.newbyteorder('<'))
    leaves.append(raw.astype(kind, copy=False).reshape(shape))
    start += size
  return leaves
