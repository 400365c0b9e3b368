"""Codecs of the wire format in NumPy alone, for sites that have no JAX.

A codec has the options and the payloads of the one of `fl_sketch.codecs` with
its name. Vectors are read and written in parts that fit a cache.
"""

from collections.abc import Iterator, Sequence
import dataclasses
from typing import Annotated, Protocol

from fl_sketch.sites import numpy_draws as draws, numpy_rotation as rotation
from fl_sketch.utils import fields
from fl_sketch.utils.centroids import lloyd_max
import numpy as np

Payload = Sequence[np.ndarray]
Layout = list[tuple[str, tuple[int, ...]]]  # dtypes and shapes
PART = rotation.GROUP  # numbers that are read at once
_SCALES = 'unbiased', 'least_squares'


class Codec(Protocol):
  """A pair of functions of a key, u32[2], and the arrays between them."""

  def encode(self, key: np.ndarray, x: np.ndarray) -> Payload:
    """Encode f32[d]."""
    ...

  def decode(self, key: np.ndarray, payload: Payload, d: int) -> np.ndarray:
    """Decode f32[d]."""
    ...

  def layout(self, d: int) -> Layout:
    """Return the arrays of a payload of d numbers."""
    ...


@dataclasses.dataclass(frozen=True)
class dense:
  """The numbers as they are."""

  def encode(self, key, x):
    return [x]

  def decode(self, key, payload, d):
    return payload[0]

  def layout(self, d):
    return [('float32', (d,))]


@dataclasses.dataclass(frozen=True)
class bfloat16:
  """The upper halves of floats, rounded at random."""

  def encode(self, key, x):
    (seed,) = draws.seeds(key, 1, draws.ROUNDING)
    upper = np.empty(x.size, np.uint16)
    for at in _parts(x.size):
      bits = np.clip(x[at], -3.3895314e38, 3.3895314e38).view(np.uint32)
      words = draws.word(draws.counters(bits.size, at.start), seed)
      upper[at] = bits + (words >> 16) >> 16
    return [upper]

  def decode(self, key, payload, d):
    x = np.empty(d, np.float32)
    for at in _parts(d):
      x[at] = (payload[0][at].astype(np.uint32) << 16).view(np.float32)
    return x

  def layout(self, d):
    return [('bfloat16', (d,))]


@dataclasses.dataclass(frozen=True)
class sign:
  """One bit a number: signs, and a scale for all, by the norm 'l1' or 'l2'."""

  norm: Annotated[str, fields.choice(('l1', 'l2'))] = 'l1'

  def encode(self, key, x):
    if self.norm == 'l2':
      scale = _rms(x[None])[0]
    else:
      scale = sum(np.abs(x[at]).sum(dtype=float) for at in _parts(x.size))
      scale = np.float32(scale / x.size)
    return [np.packbits(x < 0), scale]

  def decode(self, key, payload, d):
    packed, scale = payload
    x = np.full(d, scale, np.float32)
    for at in _parts(d):
      _negate(x[at], np.unpackbits(packed[_bytes(at)], count=x[at].size))
    return x

  def layout(self, d):
    return [('uint8', (-(-d // 8),)), ('float32', ())]


@dataclasses.dataclass(frozen=True)
class int8:
  """Whole numbers up to 127, rounded at random, and scales of blocks."""

  block: fields.Count = 256

  def encode(self, key, x):
    levels, scales = np.empty(x.size, np.int8), []
    block = min(self.block, x.size)
    step = -(-PART // block) * block  # whole blocks
    for start in range(0, x.size, step):
      part = x[start : start + step]
      rows = np.pad(np.abs(part), (0, -part.size % block)).reshape(-1, block)
      scales.append(rows.max(1))
      steps = fraction(rows, scales[-1][:, None]) * np.float32(127)
      steps = steps.ravel()[: part.size]
      whole = np.floor(steps)
      whole += draws.uniform(key, part.size, start) < steps - whole
      levels[start : start + step] = np.copysign(whole, part)
    return [levels, np.concatenate(scales)]

  def decode(self, key, payload, d):
    x, block = payload[0].astype(np.float32), min(self.block, d)
    scales = payload[1] / np.float32(127)
    whole = x[: d - d % block].reshape(-1, block)
    whole *= scales[: len(whole), None]
    x[whole.size :] *= scales[-1]
    return x

  def layout(self, d):
    return [('int8', (d,)), ('float32', (-(-d // min(self.block, d)),))]


@dataclasses.dataclass(frozen=True)
class eden:
  """One to four bits of rotated numbers, and a scale for each block."""

  bits: Annotated[int, fields.Rule('1 to 4', (1, 2, 3, 4).__contains__)] = 1
  rotate: bool = True
  scale: Annotated[str, fields.choice(_SCALES)] = 'unbiased'

  def encode(self, key, x):
    planes = np.empty((self.bits, -(-x.size // 8)), np.uint8)
    size = None if self.rotate else _rms(x[None])
    sums = []
    for at in _parts(x.size):
      part = np.array(x[at], np.float32)
      if self.rotate:
        _rotate(part, at.start, key, back=False)
      found = [self._nearest(rows, size) for rows in _rows(part)]
      bits = np.concatenate([bits for bits, _ in found], axis=1)
      planes[:, _bytes(at)] = np.packbits(bits, axis=1)
      sums += [sums for _, sums in found]
    size, count, dot, square = np.concatenate(sums, axis=1)
    if not self.rotate:  # all have one scale
      size, count = size[0], count.sum()
      dot, square = dot.sum(), square.sum()
    if self.scale == 'least_squares':
      factor = dot / square
    else:
      factor = count / np.where(dot > 0, dot, 1)
    return [planes, np.float32(size * factor)]

  def _nearest(self, rows, size):
    """Return bits bool[bits, n], and sums of rows f64[4, rows]."""
    c = np.array(lloyd_max(self.bits)[0], np.float32)
    size = _rms(rows) if size is None else np.repeat(size, len(rows))
    u = fraction(rows, size[:, None])
    negative, u = u < 0, np.abs(u)
    index = np.zeros(u.shape, np.uint8)
    for end in (c[1:] + c[:-1]) / 2:
      index += u > end
    q = c[index]
    of_rows = lambda a, b: np.einsum('ij,ij->i', a, b)
    count = np.full(len(rows), rows.shape[1])
    sums = np.array([size, count, of_rows(u, q), of_rows(q, q)], float)
    planes = [index >> i & 1 for i in reversed(range(self.bits - 1))]
    planes = [negative, *planes]
    return np.array(planes, bool).reshape(self.bits, -1), sums

  def decode(self, key, payload, d):
    packed, scales = payload
    c = np.array(lloyd_max(self.bits)[0], np.float32)
    x = np.empty(d, np.float32)
    for at in _parts(d):
      part = x[at]
      planes = np.unpackbits(packed[:, _bytes(at)], axis=1, count=part.size)
      index = np.zeros(part.size, np.uint8)
      for bits in planes[1:]:
        index = 2 * index + bits
      np.take(c, index, out=part)
      _negate(part, planes[0])
      if not self.rotate:
        part *= scales
        continue
      first = at.start // rotation.BLOCK
      for rows in _rows(part):
        rows *= scales[first : first + len(rows), None]
        first += len(rows)
      _rotate(part, at.start, key, back=True)
    return x

  def layout(self, d):
    scales = (-(-d // rotation.BLOCK),) if self.rotate else ()
    planes = ('uint8', (self.bits, -(-d // 8)))
    return [planes, ('float32', scales)]


def _parts(d: int) -> Iterator[slice]:
  for start in range(0, d, PART):
    yield slice(start, min(start + PART, d))


def _bytes(at: slice) -> slice:
  """Return where the bits of a part are; parts begin at whole bytes."""
  return slice(at.start // 8, -(-at.stop // 8))


def _rows(part):
  """Yield the whole blocks as rows, then the numbers beyond them as one."""
  cut = part.size - part.size % rotation.BLOCK
  if cut:
    yield part[:cut].reshape(-1, rotation.BLOCK)
  if cut < part.size:
    yield part[None, cut:]


def _rotate(part, start, key, back):
  rotation.rotate_group(part, start // PART, key, back)
  if rest := part.size % rotation.BLOCK:
    part[-rest:] = rotation.rotate_rest(part[-rest:], key, back)


def _negate(x, bits):
  """Change the signs of f32[n] in place where bits, uint8[n], are 1."""
  x.view(np.uint32)[:] ^= bits.astype(np.uint32) << 31


def fraction(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
  """Return x / scale, 0 where the scale is 0."""
  return x / np.where(scale == 0, np.float32(1), scale)


def _rms(rows):
  """Return the root mean square of rows, f32[rows]; squares do not overflow."""
  unit = np.abs(rows).max(initial=0) or np.float32(1)
  parts = (rows[:, at] / unit for at in _parts(rows.shape[1]))
  total = sum(np.einsum('ij,ij->i', x, x).astype(float) for x in parts)
  return (unit * np.sqrt(total / rows.shape[1])).astype(np.float32)
