"""Compressed updates of any framework: dicts of arrays, in NumPy alone."""

from collections.abc import Mapping
import dataclasses
import functools
import json
import math
import struct
from typing import Any, NamedTuple

from fl_sketch.sites import (
  numpy_codecs as codecs,
  numpy_draws as draws,
  numpy_sketch as sketches,
  numpy_sparse as sparse,
  sealed,
)
from fl_sketch.utils import fields, registry
import numpy as np

Arrays = Mapping[str, np.ndarray]
MAGIC = b'FLSU'
# Magic, version, seed, round, sender, bytes of the description; then the crc32
# of everything else.
HEADER = struct.Struct('<4sHIiII')
_ROUND, _CLIENT, _CODEC = 1, 2, 0x10CA2  # folded into keys, as of the library
_SKETCHES: dict[str, Any] = {'block_srht': sketches.block_srht}
FACTORIES: dict[str, Any] = _SKETCHES | {
  x.__name__: x for x in (
    codecs.dense, codecs.eden, codecs.sign, codecs.bfloat16, codecs.int8,
    sparse.chunked_top_k,
  )
}  # fmt: skip
WHOLE = 'dense'  # no compression
_KINDS, _LARGE = 'fiub', 4096  # of dtypes; numbers
_SIZES = 'size', 'k'  # that may be fractions
# Codecs whose error is less than the vector, as error feedback needs.
_CONTRACTIONS = 'sign', 'chunked_top_k'


class _Stage(NamedTuple):
  codec: codecs.Codec  # or a sketch
  d: int
  key: np.ndarray


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

  ValueError: the text names no codec or sketch, or an option that it lacks.
  """

  def __init__(self, compressor: str, *, seed: int = 0):
    self._text, self._seed = compressor, seed
    self._parts, self.feedback = _parsed(compressor)
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
      stages = self._stages(x.size, number, sender)
      leaves += _encode(stages, x)
      if decodes:
        decoded = _decode(stages, leaves)
      if self.feedback:
        x -= decoded
        self.memory |= _parts(x, arrays)
    leaves += others
    kinds = {k: [x.dtype.name, x.shape] for k, x in arrays.items()}
    text = json.dumps([self._text, kinds]).encode()
    body = b''.join([text, *map(_little, leaves)])
    del x, leaves  # of a large model
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
    """Decode a message that `opened` has parsed; otherwise as `decode`."""
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
    stages = self._stages(d, message.number, message.sender) if d else []
    layout = stages[-1].codec.layout(stages[-1].d) if stages else []
    leaves = [(x.dtype.name, x.shape) for x in others.values()]
    leaves = _read(message.body, [*layout, *leaves])
    with np.errstate(all='ignore'):  # what is not finite is refused here
      x = _decode(stages, leaves[: len(layout)])
    if not _are_finite(x, *leaves[len(layout) :]):
      raise sealed.PayloadError('The update is not finite.')
    others = dict(zip(others, leaves[len(layout) :], strict=True))
    found = others | _split(x, like)
    return {name: found[name] for name in like}

  @property
  def has_sketch(self) -> bool:
    """Whether the error of a vector may be larger than the vector."""
    return self._parts[0]['kind'] in _SKETCHES

  def _stages(self, d, number, sender) -> list[_Stage]:
    """Build the compressor of d numbers, for a round of a sender."""
    root, stages = draws.seed_key(self._seed), []
    fold = lambda *numbers: functools.reduce(draws.fold_in, numbers, root)
    public, own = fold(_ROUND, number), fold(_CLIENT, number, sender, _CODEC)
    for options in self._parts:
      made = _built(options, d)
      key = public if options['kind'] in _SKETCHES else own
      stages.append(_Stage(made, d, key))
      d = math.prod(made.layout(d)[0][1])  # of a table
    return stages


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
  except (AttributeError, TypeError, ValueError) as e:
    raise sealed.PayloadError(f'The description is malformed: {e}.') from e
  seed, number, sender = values
  return Opened(seed, number, sender, compressor, like, body[end:])


def _encode(stages, x) -> codecs.Payload:
  payload = []
  for codec, _, key in stages:
    payload = codec.encode(key, x)
    x = payload[0].ravel()
  return payload


def _decode(stages, payload) -> np.ndarray:
  x = np.zeros(0, np.float32)
  for codec, d, key in stages[::-1]:
    x = codec.decode(key, payload, d)
    payload = [x]
  return x


def _parsed(text: str) -> tuple[list[dict[str, Any]], bool]:
  """Return the options of a sketch, a codec or both, and whether of feedback.

  ValueError: the text has another form, or a name or option that is not known.
  """
  parts = [registry.parse_call(x, 'compressor') for x in text.split('|')]
  feedback = bool(parts[-1].pop('error_feedback', False))
  kinds = [part['kind'] in _SKETCHES for part in parts]
  if kinds not in ([True], [False], [True, False]):
    raise ValueError(
      f'compressor={text!r} must be a codec, a sketch, or a sketch | a codec.'
    )
  for part in parts:
    _built(part, 1 << 20)
  nearest = parts[0].get('scale') == 'least_squares'
  if feedback and parts[0]['kind'] not in _CONTRACTIONS and not nearest:
    raise ValueError(
      f'compressor={text!r} is no contraction, as error_feedback needs; use '
      f"one of {', '.join(_CONTRACTIONS)} or eden(scale='least_squares')."
    )
  return parts, feedback


def _built(options, d) -> codecs.Codec:
  """Build a codec; sizes that are fractions are of d, or of a chunk."""
  options = dict(options)
  kind = options.pop('kind')
  if kind not in FACTORIES:
    hint = fields.did_you_mean(kind, FACTORIES)
    raise ValueError(f'compressor={kind} has no form in NumPy.{hint}')
  factory = FACTORIES[kind]
  known = {x.name: x.default for x in dataclasses.fields(factory)}
  if unknown := options.keys() - known.keys():
    raise ValueError(f'{kind} has no option {", ".join(sorted(unknown))}.')
  required = {k for k, x in known.items() if x is dataclasses.MISSING}
  if missing := required - options.keys():
    raise ValueError(f'{kind} needs {", ".join(missing)}.')
  chunk = getattr(factory, 'chunk', None)
  d = min(d, options.get('chunk', chunk)) if chunk else d
  for name in options.keys() & {*_SIZES}:
    if isinstance(options[name], float):
      options[name] = max(1, round(options[name] * d))
    if options[name] > d:
      raise ValueError(f'{kind}: {name}={options[name]} exceeds {d} numbers.')
  codec = factory(**options)
  fields.check_options(codec)
  return codec


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


def _read(body: memoryview, layout: codecs.Layout) -> list[np.ndarray]:
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
