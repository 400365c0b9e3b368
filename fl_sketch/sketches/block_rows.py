"""Hadamard transforms of blocks, and a random part of their rows.

Kernels of `block_srht`. A vector of d numbers is a grid [m, columns], whose
columns are the blocks, and a rest of less than m numbers. Whole rows of the
transformed grid are kept, and of one row the entries from a random column on.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fl_sketch.sketches import hadamard, hashing, primitives
from fl_sketch.sketches.signs import signed
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import ArrayLike

_FEW = 128  # rows up to which a product with signs is faster than a transform
_TILE = 2**19  # numbers that fit into the cache of a core
_WIDE, _PIECES = 64, 16  # on a CPU, grids of _WIDE columns are cut into _PIECES
_REST = 1  # folded into the key of the rows, for those of the rest


class Plan(NamedTuple):
  """How d numbers are cut into a grid and a rest, which share b rows."""

  d: int
  size: int  # b
  block: int  # m, a power of two up to d
  columns: int  # blocks in the grid
  beyond: int  # coordinates beyond the grid
  rows: int  # of the grid that are kept, the last one perhaps in part
  grid: int  # kept entries of the grid
  rest: int  # kept entries of the rest
  coin: int  # d times the probability that the rest replaces a grid entry


def plan(d: int, size: int, block: int) -> Plan:
  """Share b rows between the grid and the rest, in proportion to their sizes.

  >>> tuple(plan(d=57, size=16, block=16))
  (57, 16, 16, 3, 9, 5, 14, 2, 30)
  """
  block = min(block, 1 << (d.bit_length() - 1))
  columns, beyond = divmod(d, block)
  rest, coin = divmod(beyond * size, d)
  grid = size - rest
  rows = -(-grid // columns)
  return Plan(d, size, block, columns, beyond, rows, grid, rest, coin)


def take(key: Key, x: jax.Array, plan: Plan) -> jax.Array:
  """Sign and transform f32[d]; return the kept f32[b] times sqrt(d / b)."""
  (signed, signed_end), draws = _signs(key), _draws(key, plan)
  start, cut = plan.d - plan.block, plan.d - plan.beyond
  grid, rest = x, x[:0]
  if plan.beyond:
    end = _mix_end(signed_end, x[start:], start)
    grid, rest = jnp.append(x[:start], end[: cut - start]), end[cut - start :]
  # A carry, whose type must vary over the mesh axes of the key, too.
  grid = jnp.where(False, primitives.zeros((), x.dtype, draws.turn), grid)
  entries = _grid_rows(signed, grid.reshape(plan.block, -1), draws.rows)
  # Not .at[-1].set: XLA's CPU backend rolls the row in place, wrongly.
  entries = jnp.append(entries[:-1], jnp.roll(entries[-1], -draws.turn))
  entries = entries[: plan.grid] / plan.block**0.5
  if plan.beyond:
    beyond = signed(cut, rest).at[draws.beyond].get(mode='promise_in_bounds')
    if plan.coin:
      last = jnp.where(draws.coin, beyond[-1], entries[-1])
      entries, beyond = entries.at[-1].set(last), beyond[:-1]
    entries = jnp.concatenate([entries, beyond])
  return (plan.d / plan.size) ** 0.5 * entries


def put(key: Key, table: jax.Array, plan: Plan) -> jax.Array:
  """Return the adjoint of `take`: f32[b] -> f32[d]."""
  (signed, signed_end), draws = _signs(key), _draws(key, plan)
  table *= (plan.d / plan.size) ** 0.5
  cut = (plan.rows - 1) * plan.columns
  last, beyond = table[cut : plan.grid], table[plan.grid :]
  if plan.coin:
    taken = last[-1]
    last = last.at[-1].set(jnp.where(draws.coin, 0, taken))
    beyond = jnp.append(beyond, jnp.where(draws.coin, taken, 0))
  last = jnp.pad(last, (0, plan.columns - last.size))
  entries = jnp.append(table[:cut], jnp.roll(last, draws.turn))
  entries = (entries / plan.block**0.5).reshape(plan.rows, plan.columns)
  x = _from_grid_rows(signed, entries, draws.rows, plan.block).ravel()
  if not plan.beyond:
    return x
  rest = primitives.zeros((plan.beyond,), x.dtype, draws.beyond, x)
  rest = rest.at[draws.beyond].set(beyond, mode='promise_in_bounds')
  start = plan.d - plan.block
  end = jnp.concatenate([x[start:], signed(x.size, rest)])
  return jnp.concatenate([x[:start], _mix_end(signed_end, end, start)])


class _Draws(NamedTuple):
  rows: jax.Array  # int32[rows] of the grid, distinct
  turn: jax.Array  # int32[], the first column of the last row
  coin: jax.Array  # bool[], whether one of the rest takes an entry's place
  beyond: jax.Array  # int32[rest, or rest + 1 with a coin], distinct


def _draws(key, plan) -> _Draws:
  turn, coin = hashing.seeds(key, 1, hashing.SHIFT)[0]
  beyond = jnp.zeros(0, jnp.int32)
  if plan.beyond:
    key_of_rest = jax.random.fold_in(key, _REST)
    count = plan.rest + (plan.coin > 0)
    beyond = hashing.sample(key_of_rest, count, plan.beyond)
  return _Draws(
    hashing.sample(key, plan.rows, plan.block),
    hashing.bucket(turn, plan.columns),
    hashing.bucket(coin, plan.d) < plan.coin, beyond,
  )  # fmt: skip


def _signs(key) -> list[Callable[[ArrayLike, jax.Array], jax.Array]]:
  """Build two functions (first coordinate, numbers) -> with random signs."""
  # With one for both transforms the second would undo the first: H S S H = 1.
  return [partial(signed, seed) for seed in hashing.seeds(key, 2, hashing.SIGN)]


def _mix_end(signed, x, start):
  """Transform f32[m], with signs before and after: self-adjoint."""
  tile = max(x.size // 4, 1)
  part = lambda i, x: signed(start + i * tile, x)
  # In a loop: fused into the butterflies, hashes would be computed many times.
  flipped = lambda x: _by_tiles(part, x.reshape(-1, tile)).ravel()
  return flipped(hadamard.fwht(flipped(x)) / x.size**0.5)


def _grid_rows(signed, grid, rows):
  m, n = grid.shape
  if rows.size > _FEW:
    # Unsigned: XLA's CPU backend is slow where an index may be negative.
    at = rows.astype(jnp.uint32)
    return _all_rows(signed, grid).at[at].get(mode='promise_in_bounds')
  matrix = hadamard.signs(rows, m).astype(grid.dtype)

  def add(start, size, total):
    part = lax.dynamic_slice_in_dim(grid, start, size)
    some = lax.dynamic_slice_in_dim(matrix, start, size, axis=1)
    return total + primitives.product(some, signed(start * n, part))

  zeros = primitives.zeros((rows.size, n), grid.dtype, rows, grid)
  return _tiled(lambda tile: primitives.fold(m, tile, add, zeros), m, n)


def _from_grid_rows(signed, entries, rows, m):
  n = entries.shape[1]
  if rows.size > _FEW:
    grid = primitives.zeros((m, n), entries.dtype, rows, entries)
    grid = grid.at[rows].set(
      entries, mode='promise_in_bounds', unique_indices=True
    )
    return _all_rows(signed, grid, back=True)
  matrix = hadamard.signs(rows, m).astype(entries.dtype).T

  def form(tile):
    part = lambda i, some: signed(
      i * tile * n, primitives.product(some, entries)
    )
    return _by_tiles(part, matrix.reshape(-1, tile, rows.size)).reshape(m, n)

  return _tiled(form, m, n)


def _all_rows(signed, x, *, back=False):
  """Sign and transform every column of [m, n]; or the adjoint, back."""
  m, n = x.shape

  def by(tile, low, x):
    def one(i, x):
      part = lax.dynamic_slice_in_dim(x, i * tile, tile)
      flip = partial(signed, i * tile * n)
      part = flip(low(part)) if back else low(flip(part))
      return lax.dynamic_update_slice_in_dim(x, part, i * tile, 0)

    high = lambda x: _times_signs(m // tile, x.reshape(m // tile, -1))
    if back:
      return lax.fori_loop(0, m // tile, one, high(x).reshape(m, n))
    return high(lax.fori_loop(0, m // tile, one, x)).reshape(m, n)

  half = 1 << (m.bit_length() // 2)
  products = partial(by, half, partial(_times_signs, half))
  if n < _WIDE:
    return products(x)
  pieces = partial(by, m // _PIECES, _by_butterflies)
  return lax.platform_dependent(x, cpu=pieces, default=products)


def _by_butterflies(x):
  m, n = x.shape
  x = _times_signs(_PIECES, x.reshape(_PIECES, -1)).ravel()
  return hadamard.levels(x, m // _PIECES * n, n).reshape(m, n)


def _tiled(form: Callable[[int], jax.Array], m: int, n: int) -> jax.Array:
  """Call form(how many rows at a time): on a CPU those that its cache holds."""
  tile = m
  while tile > 1 and tile * n > _TILE:
    tile //= 2
  if tile == m:
    return form(m)
  return lax.platform_dependent(cpu=lambda: form(tile), default=lambda: form(m))


def _by_tiles(part, tiles):
  if len(tiles) == 1:
    return part(0, tiles[0])[None]
  return lax.map(lambda x: part(*x), (jnp.arange(len(tiles)), tiles))


def _times_signs(m, x):
  return primitives.product(hadamard.signs(jnp.arange(m), m).astype(x.dtype), x)


def constant(plan: Plan) -> float | None:
  """Return the coordinate-wise constant; None where m does not divide d."""
  if plan.beyond:
    return None
  more = plan.grid % plan.columns / plan.columns
  factor = (plan.d / plan.size / plan.block) ** 2
  return plan.size * factor * (2 * _spread(plan) + more * (1 - more))


def _spread(plan) -> float:
  # The mean over blocks of r (m - r) / (m - 1), for r of m rows.
  few, more = divmod(plan.grid, plan.columns)
  spread = lambda r: r * (plan.block - r) / max(plan.block - 1, 1)
  share = more / plan.columns  # of the blocks, which keep one row more
  return spread(few) + share * (spread(few + 1) - spread(few))
