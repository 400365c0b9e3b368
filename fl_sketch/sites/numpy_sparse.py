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
    step = max(1, PART // width) * width
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
      found.append((at, cell + levels * (values < 0), means))
    at, codes, means = (np.concatenate(x) for x in zip(*found, strict=True))
    return [_pack(at, _width(width)), _pack(codes, self.bits), means]

  def decode(self, key, payload, d):
    places, codes, means = payload
    width, levels = min(self.chunk, d), 2 ** (self.bits - 1)
    shape = len(means), self.k
    at = _unpack(places, _width(width), shape)
    codes = _unpack(codes, self.bits, shape)
    if at.max() >= width:
      raise PayloadError(f'A place in a chunk is not below {width}.')
    values = np.take_along_axis(means, codes % levels, 1)
    x = np.zeros((len(means), width), np.float32)
    np.put_along_axis(x, at, np.where(codes < levels, values, -values), 1)
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


def _width(n: int) -> int:
  return (n - 1).bit_length()


def _pack(codes, width):
  """Pack whole numbers below 2^width without gaps."""
  bits = codes.reshape(-1, 1) >> np.arange(width)[::-1] & 1
  return np.packbits(bits.astype(bool))


def _unpack(packed, width, shape):
  count = math.prod(shape)
  bits = np.unpackbits(packed, count=count * width)
  codes = bits.reshape(count, width) @ (1 << np.arange(width)[::-1])
  return codes.reshape(shape)
