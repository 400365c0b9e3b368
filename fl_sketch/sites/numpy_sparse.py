"""The codec of the largest numbers in NumPy alone, as of `numpy_codecs`."""

import dataclasses
import math
from typing import Annotated

from fl_sketch.sites.numpy_codecs import PART, fraction
from fl_sketch.sites.sealed import PayloadError
from fl_sketch.utils import fields
import numpy as np


@dataclasses.dataclass(frozen=True)
class chunked_top_k:
  """Places and few bits of the k largest of each chunk, and means of cells."""

  k: fields.Count
  chunk: fields.Count = 4096
  bits: Annotated[int, fields.Rule('2, 3 or 4', (2, 3, 4).__contains__)] = 2

  def encode(self, key, x):
    width, levels = min(self.chunk, x.size), 2 ** (self.bits - 1)
    found = []
    step = _rows(width) * width
    for start in range(0, x.size, step):
      part = x[start : start + step]
      rows = np.pad(part, (0, -part.size % width)).reshape(-1, width)
      at = _largest(rows, self.k)
      values = np.take_along_axis(rows, at, 1)
      scale = np.abs(values).max(1, keepdims=True)
      part = fraction(np.abs(values), scale)
      cell = np.ceil(part * np.float32(levels)).astype(int) - 1
      cell = np.clip(cell, 0, levels - 1)
      member = cell[..., None] == np.arange(levels)
      total = (member * part[..., None]).sum(1)
      means = np.float32(total / np.maximum(member.sum(1), 1)) * scale
      codes = cell + levels * (values < 0)
      found.append((_pack(at, _width(width)), _pack(codes, self.bits), means))
    return [np.concatenate(x) for x in zip(*found, strict=True)]

  def decode(self, key, payload, d):
    places, codes, means = payload
    width, levels = min(self.chunk, d), 2 ** (self.bits - 1)
    x = np.zeros((len(means), width), np.float32)
    for start in range(0, len(means), _rows(width)):
      part = slice(start, start + _rows(width))
      shape = len(means[part]), self.k
      at = _unpack(places, _width(width), start, shape)
      code = _unpack(codes, self.bits, start, shape)
      if at.max() >= width:
        raise PayloadError(f'A place in a chunk is not below {width}.')
      values = np.take_along_axis(means[part], code % levels, 1)
      values = np.where(code < levels, values, -values)
      np.put_along_axis(x[part], at, values, 1)
    return x.ravel()[:d]

  def layout(self, d):
    width = min(self.chunk, d)
    if self.k > width:
      raise ValueError(f'k={self.k} exceeds a chunk of {width} numbers.')
    rows = -(-d // width)
    packed = lambda bits: ('uint8', (-(-rows * self.k * bits // 8),))
    means = ('float32', (rows, 2 ** (self.bits - 1)))
    return [packed(_width(width)), packed(self.bits), means]


def _largest(rows, k):
  """Return the places of the k largest magnitudes of rows, in falling order.

  Of equal ones the first are taken.
  """
  sizes = np.abs(rows)
  sizes.partition(sizes.shape[1] - k, axis=1)
  least, chosen = sizes[:, -k].copy(), []
  del sizes  # memory for another copy
  for row, bound in zip(rows, least, strict=True):
    size = np.abs(row)
    (above,), (equal,) = np.nonzero(size > bound), np.nonzero(size == bound)
    at = np.sort(np.concatenate([above, equal[: k - above.size]]))
    chosen.append(at[np.argsort(-size[at], kind='stable')])
  return np.array(chosen)


def _rows(width):
  """Return the number of chunks in a part: a multiple of 8, for whole bytes."""
  return max(1, PART // width // 8) * 8


def _width(n: int) -> int:
  return (n - 1).bit_length()


def _pack(codes, width):
  """Pack whole numbers below 2^width without gaps."""
  bits = codes.reshape(-1, 1) >> np.arange(width)[::-1] & 1
  return np.packbits(bits.astype(bool))


def _unpack(packed, width, start, shape):
  """Unpack rows of whole numbers, from row `start` on, a multiple of 8."""
  count, first = math.prod(shape), start * shape[1] * width // 8
  bits = np.unpackbits(packed[first:], count=count * width)
  codes = bits.reshape(count, width) @ (1 << np.arange(width)[::-1])
  return codes.reshape(shape)
