"""The sketch `block_srht` in NumPy alone.

It has the interface of `numpy_codecs.Codec`; its one array is the table.
"""

import dataclasses
import math
from typing import NamedTuple

from fl_sketch.sites import numpy_draws as draws
from fl_sketch.sites.numpy_rotation import flip, transform
from fl_sketch.utils import fields
import numpy as np

_PART = 1 << 17  # numbers that are hashed or transformed at once


@dataclasses.dataclass(frozen=True)
class block_srht:
  """A random part of the orthonormal transforms of blocks of m numbers."""

  size: fields.Count
  block: fields.Count = 4096

  def __post_init__(self):
    if self.block & self.block - 1:
      raise ValueError(f'block={self.block} must be a power of two.')

  def encode(self, key, x):
    plan, x = _plan(self, key, x.size), np.array(x, np.float32)
    _mix_end(plan, x)
    _flip(plan.signs[0], x)
    grid, *columns = _columns(plan, x)
    shape = plan.rows.size, grid.shape[1]
    count, cut = math.prod(shape), self.size - plan.rest
    table = np.empty(count + plan.rest, np.float32)
    rows = table[:count].reshape(shape)
    for at in columns:
      rows[:, at] = transform(grid[:, at].T)[:, plan.rows].T
    rows[-1] = np.roll(rows[-1], -plan.turn)
    others = x[plan.others]
    if plan.takes_last:
      table[cut - 1] = others[-1]
    table[cut : self.size] = others[: plan.rest]
    table = table[: self.size]  # nothing is written beyond it
    table *= plan.scale
    return [table]

  def decode(self, key, payload, d):
    plan, x = _plan(self, key, d), np.zeros(d, np.float32)
    (table,), cut = payload, self.size - plan.rest
    grid, *columns = _columns(plan, x)
    rows = np.zeros((plan.rows.size, grid.shape[1]), np.float32)
    kept = rows.ravel()[:cut]  # a view
    np.multiply(plan.scale, table[:cut], out=kept)
    x[plan.others[: plan.rest]] = plan.scale * table[cut:]
    if plan.takes_last:
      x[plan.others[-1]], kept[-1] = kept[-1], 0
    rows[-1] = np.roll(rows[-1], plan.turn)
    for at in columns:
      part = np.zeros((grid[0, at].size, plan.block), np.float32)
      part[:, plan.rows] = rows[:, at].T
      grid[:, at] = transform(part).T
    _flip(plan.signs[0], x)
    _mix_end(plan, x)
    return x

  def layout(self, d):
    if self.size > d:
      raise ValueError(f'size={self.size} exceeds {d} numbers.')
    return [('float32', (self.size,))]


class _Plan(NamedTuple):
  block: int
  rows: np.ndarray  # of the grid [block, columns] that are kept
  rest: int  # how many numbers beyond the grid are kept
  others: np.ndarray  # their coordinates, and perhaps one more,
  takes_last: bool  # which takes the place of the grid's last
  turn: int  # the first column of the last row
  signs: np.ndarray  # seeds, of all numbers and of the last block
  scale: np.float32


def _plan(op, key, d):
  m = min(op.block, 1 << d.bit_length() - 1)
  columns, beyond = divmod(d, m)
  rest, chance = divmod(beyond * op.size, d)
  turn, coin = draws.seeds(key, 1, draws.SHIFT)[0].astype(int)
  count = rest + (chance > 0)
  others = draws.sample(draws.fold_in(key, 1), count, beyond or 1)[:count]
  rows = draws.sample(key, -(-(op.size - rest) // columns), m)
  return _Plan(
    m, rows, rest, d - beyond + others, coin % d < chance, turn % columns,
    draws.seeds(key, 2, draws.SIGN), np.float32((d / op.size) ** 0.5),
  )  # fmt: skip


def _columns(plan, x):
  """Return the grid of the first numbers, and slices of its columns."""
  columns = x.size // plan.block
  grid = x[: plan.block * columns].reshape(plan.block, columns)
  step = -(-_PART // plan.block)
  starts = range(0, columns, step)
  return grid, *(slice(i, min(i + step, columns)) for i in starts)


def _flip(seed, x, first=0):
  """Give coordinates from the first on the signs of a seed, in place."""
  for start in range(0, x.size, _PART):
    part = x[start : start + _PART]
    flip(part, draws.word(draws.counters(part.size, first + start), seed))


def _mix_end(plan, x):
  """Transform the last numbers, with signs before and after: self-adjoint."""
  if x.size % plan.block:
    start = x.size - plan.block
    _flip(plan.signs[1], x[start:], start)
    x[start:] = transform(x[None, start:])[0]
    _flip(plan.signs[1], x[start:], start)
