"""Quantisation to few bits after a random rotation: EDEN."""

import dataclasses
import functools
import itertools
import math
from statistics import NormalDist
from typing import Annotated

from fl_sketch import sketches
from fl_sketch.codecs import base
from fl_sketch.sketches import hashing, primitives
from fl_sketch.utils import fields
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

_BLOCK = 4096
_PASSES = 3
_DENSE = 32  # numbers up to which sums of signs are far from normal
_SCALES = 'unbiased', 'least_squares'


@dataclasses.dataclass(frozen=True)
class eden(base.VectorCodec):
  r"""EDEN: send the nearest centroids of a rotated vector, and one scale.

  With T a random rotation of the key, :math:`y = T x` has n near-Gaussian
  entries, whatever x is, and :math:`q_i` is the centroid nearest to
  :math:`\sqrt n\, y_i / \|y\|`, of the 2^bits that are best for N(0, 1) (Lloyd
  and Max). It is decoded as :math:`S\, T^\top q`:

  'unbiased': :math:`S = \|y\|^2 / \langle y, q \rangle`. Then :math:`E\|S
  T^\top q - x\|^2 = \omega \|x\|^2` with omega = D / (1 - D), for D the
  distortion of the centroids: 0.571, 0.133, 0.0358 and 0.0096 at 1 to 4 bits.
  'least_squares': :math:`S = \langle y, q \rangle / \|q\|^2`, whose error is D:
  the contraction 1 - D = 1 / (1 + omega) that error feedback needs.

  ``num_coordinates`` = m sends m entries of y, times d / m where unbiased:
  1 + omega becomes (d / m) (1 + omega).

  The constants are those of a uniform rotation as d grows. Beyond 32 numbers T
  is three passes of `sketches.block_srht`: omega is within 2 %.

  Without ``rotate`` the tree is quantised as it is, as suits tables of `srht`,
  `dct` or `block_srht`: unbiased over the keys of the tables. Of a tree by
  itself only the contraction of 'least_squares' is stated.

  >>> packed, size = eden(2).encode(jax.random.key(0), jnp.ones(60))
  >>> packed.shape, packed.dtype, size.shape
  ((2, 8), dtype('uint8'), ())

  The payload is (uint8[bits, ceil(n / 8)], the planes of signs and of the bits
  of the magnitudes' indices; f32[], S). ``num_coordinates`` above d, or without
  ``rotate``, raises ValueError.

  Source: Vargaftik et al., EDEN (ICML 2022, arXiv:2108.08842); one bit is DRIVE
  (NeurIPS 2021, arXiv:2105.08339). ``num_coordinates`` is their rotated rand-k.
  """

  bits: Annotated[
    int, fields.Rule('1, 2, 3 or 4', (1, 2, 3, 4).__contains__)
  ] = 1
  _: dataclasses.KW_ONLY
  num_coordinates: fields.Count | None = None
  rotate: bool = True
  scale: Annotated[str, fields.choice(_SCALES)] = 'unbiased'

  def __post_init__(self):
    super().__post_init__()
    if self.num_coordinates is not None and not self.rotate:
      raise ValueError(f'{self.num_coordinates=} requires rotate=True.')

  @property
  def omega(self):
    if self.scale == 'least_squares' or not self.rotate:
      return None
    return lambda like: 1 / self._share(sketches.dimension(like)) - 1

  @property
  def contraction(self):
    if self.scale == 'unbiased':
      return None
    # Without rotation the least is that of a spike.
    law = self._share if self.rotate else lambda d: 1 / d
    return lambda like: law(sketches.dimension(like))

  def _share(self, d: int) -> float:  # of the energy that is kept, expected
    return self._part(d) * (1 - lloyd_max(self.bits)[1])

  def _part(self, d: int) -> float:
    return (self.num_coordinates or d) / d

  def encode_vector(self, key, x):
    y = _rotate(key, x, self.num_coordinates) if self.rotate else x
    size = primitives.norm(y) / y.size**0.5
    planes, q, dot = _nearest(base.fraction(y, size), lloyd_max(self.bits)[0])
    factor = y.size / jnp.where(dot > 0, dot, 1)
    if self.scale == 'least_squares':
      factor = self._part(x.size) * dot / jnp.square(q).sum()
    return jnp.packbits(planes, axis=1), size * factor

  def decode_vector(self, key, payload, d):
    packed, size = payload
    planes = jnp.unpackbits(packed, axis=1, count=self.num_coordinates or d)
    y = size * _values(planes, lloyd_max(self.bits)[0])
    return _rotate_back(key, y, d) if self.rotate else y


@functools.cache
def lloyd_max(bits: int) -> tuple[tuple[float, ...], float]:
  """Return the positive centroids of N(0, 1) in 2^bits cells, and E(x - q)^2.

  Source: Lloyd, 1982; Max, 1960.

  >>> [round(x, 4) for x in lloyd_max(2)[0]], round(lloyd_max(2)[1], 4)
  ([0.4528, 1.5104], 0.1175)
  """
  normal, count = NormalDist(), 2 ** (bits - 1)
  starts = (0.5 + (i + 0.5) / count / 2 for i in range(count))
  centroids = list(map(normal.inv_cdf, starts))
  while True:
    middle = [(a + b) / 2 for a, b in itertools.pairwise(centroids)]
    cells = list(itertools.pairwise([0.0, *middle, math.inf]))
    masses = [normal.cdf(b) - normal.cdf(a) for a, b in cells]
    firsts = [normal.pdf(a) - normal.pdf(b) for a, b in cells]
    moved = [f / m for f, m in zip(firsts, masses, strict=True)]
    if max(abs(a - b) for a, b in zip(moved, centroids, strict=True)) < 1e-13:
      squares = sum(m * c**2 for m, c in zip(masses, moved, strict=True))
      return tuple(moved), 1 - 2 * squares
    centroids = moved


def _nearest(u, centroids):
  """Return bits, nearest centroids q and <u, q> of u of mean square 1."""
  levels = np.array(centroids, np.float32)
  index = jnp.zeros(u.shape, jnp.int32)
  for end in (levels[1:] + levels[:-1]) / 2:
    index += jnp.abs(u) > end
  count = len(centroids).bit_length() - 1
  bits = [index >> i & 1 for i in reversed(range(count))]
  planes = jnp.stack([u < 0, *(bit > 0 for bit in bits)])
  q = _values(planes, centroids)
  return planes, q, (u * q).sum()


def _values(planes, centroids):
  """Return the centroids that bits [bits, n] name: f32[n]."""
  index = jnp.zeros(planes.shape[1:], jnp.int32)
  for bit in planes[1:]:
    index = 2 * index + bit
  size = jnp.array(centroids, jnp.float32)[index]
  return jnp.where(planes[0] > 0, -size, size)


def _rotate(key, x, count):
  """Return `count` entries of the rotated vector, times sqrt(d / count)."""
  d, count = x.size, count or x.size
  base.check_fits(count, d, 'num_coordinates')
  if d <= _DENSE:
    return (d / count) ** 0.5 * primitives.product(_uniform(key, d)[:count], x)
  whole = sketches.block_srht(d, _BLOCK)

  def one(i, x):
    pass_key = jax.random.fold_in(key, i)
    return _deal(pass_key, whole.sketch(pass_key, x))

  # A loop, so that a pass is compiled once.
  x = lax.fori_loop(0, _PASSES - 1, one, x)
  last = sketches.block_srht(count, _BLOCK)
  return last.sketch(jax.random.fold_in(key, _PASSES - 1), x)


def _rotate_back(key, y, d):
  if d <= _DENSE:
    rows = _uniform(key, d)[: y.size]
    return (d / y.size) ** 0.5 * primitives.product(rows.T, y)
  like = jax.ShapeDtypeStruct((d,), y.dtype)
  op = sketches.block_srht(y.size, _BLOCK)
  x = op.desketch(jax.random.fold_in(key, _PASSES - 1), y, like)
  whole = sketches.block_srht(d, _BLOCK)

  def one(i, x):
    pass_key = jax.random.fold_in(key, _PASSES - 2 - i)
    return whole.desketch(pass_key, _deal(pass_key, x, back=True), like)

  return lax.fori_loop(0, _PASSES - 1, one, x)


def _uniform(key, d):
  """Return a uniform orthogonal matrix, f32[d, d]."""
  # By Gram-Schmidt: batches of LAPACK's QR may hang on a CPU.
  (seed,) = hashing.seeds(key, 1, hashing.ENTRY)
  words = hashing.word(jnp.arange(d * d, dtype=jnp.uint32), seed)
  columns = hashing.normal(words).reshape(d, d).T

  def one(i, q):  # the rows from i on are 0
    x = columns[i]
    for _ in range(2):  # the second pass removes rounding errors of the first
      x -= primitives.product(primitives.product(q, x), q)
    return q.at[i].set(x / jnp.linalg.norm(x))

  return lax.fori_loop(0, d, one, 0 * columns).T


def _deal(key, x, *, back=False):
  """Reorder, or restore, so that the next pass mixes different parts."""
  block = min(_BLOCK, 1 << (x.size.bit_length() - 1))
  columns, beyond = divmod(x.size, block)
  cut = x.size - beyond

  def exchange(x):  # as many of the rest leave as if all were shuffled
    count = -(-beyond * cut // x.size)
    at, end = hashing.sample(key, count, cut), slice(cut, cut + count)
    return x.at[at].set(x[end], unique_indices=True).at[end].set(x[at])

  def turn(x):
    shape = (columns, block) if back else (block, columns)
    return jnp.concatenate([x[:cut].reshape(shape).T.ravel(), x[cut:]])

  steps = [exchange] * (beyond > 0) + [turn] * (columns > 1)
  for step in steps[::-1] if back else steps:
    x = step(x)
  return x
