"""Quantisation to few bits after a random rotation: EDEN."""

import dataclasses
from typing import Annotated

from fl_sketch import sketches
from fl_sketch.codecs import base, rotation
from fl_sketch.sketches import primitives
from fl_sketch.utils import fields
from fl_sketch.utils.centroids import lloyd_max
import jax
import jax.numpy as jnp
import numpy as np

_SCALES = 'unbiased', 'least_squares'


@dataclasses.dataclass(frozen=True)
class eden(base.VectorCodec):
  r"""EDEN: send the nearest centroids of a rotated vector, and a scale.

  With T a random rotation of the key, :math:`y = T x` has n near-Gaussian
  entries, whatever x is, and :math:`q_i` is the centroid nearest to
  :math:`\sqrt n\, y_i / \|y\|`, of the 2^bits that are best for N(0, 1) (Lloyd
  and Max). It is decoded as :math:`S\, T^\top q`. Each 4,096 numbers are
  rotated by themselves, and have a scale S of their own:

  'unbiased': :math:`S = \|y\|^2 / \langle y, q \rangle`. Then :math:`E\|S
  T^\top q - x\|^2 = \omega \|x\|^2` with omega = D / (1 - D), for D the
  distortion of the centroids: 0.571, 0.133, 0.0358 and 0.0096 at 1 to 4 bits.
  'least_squares': :math:`S = \langle y, q \rangle / \|q\|^2`, whose error is D:
  the contraction 1 - D = 1 / (1 + omega) that error feedback needs.

  ``num_coordinates`` = m first sketches x by `sketches.block_srht` to m
  numbers: 1 + omega becomes (d / m) (1 + omega).

  The constants are those of a uniform rotation as d grows. Of `rotation.rotate`
  omega is at most 2 % larger.

  Without ``rotate`` the tree is quantised as it is, as suits tables of `srht`,
  `dct` or `block_srht`: unbiased over the keys of the tables. Of a tree by
  itself only the contraction of 'least_squares' is stated.

  >>> key, x = jax.random.key(0), jnp.ones(60)
  >>> packed, size = jax.eval_shape(eden(2).encode, key, x)
  >>> packed.shape, packed.dtype, size.shape
  ((2, 8), dtype('uint8'), (1,))

  The payload is (uint8[bits, ceil(n / 8)], the planes of signs and of the bits
  of the magnitudes' indices; f32[ceil(n / 4096)], the scales, f32[] without
  ``rotate``). ``num_coordinates`` above d, or without ``rotate``, raises
  ValueError.

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
    y = self._rotated(key, x)
    rows = base.rows(y, self._width(y.size))
    count = base.rows(jnp.ones_like(y), rows.shape[1])  # 0 beyond the last one
    numbers = count.sum(1)
    # No square overflows; those that vanish are of blocks that do not matter.
    unit = primitives.scale_of(y)
    size = unit * jnp.sqrt(jnp.square(rows / unit).sum(1) / numbers)
    u = base.fraction(rows, size[:, None])
    planes, q = _nearest(u, lloyd_max(self.bits)[0])
    dot = (u * q).sum(1)
    factor = numbers / jnp.where(dot > 0, dot, 1)
    if self.scale == 'least_squares':
      factor = self._part(x.size) * dot / jnp.square(count * q).sum(1)
    planes = planes.reshape(self.bits, -1)[:, : y.size]
    scales = size * factor
    return jnp.packbits(planes, axis=1), scales if self.rotate else scales[0]

  def decode_vector(self, key, payload, d):
    packed, size = payload
    n = self.num_coordinates or d
    planes = jnp.unpackbits(packed, axis=1, count=n)
    values = _values(planes, lloyd_max(self.bits)[0])
    values = base.rows(values, self._width(n))
    y = (size.reshape(-1, 1) * values).ravel()[:n]
    if not self.rotate:
      return y
    x = rotation.rotate(key, y, back=True)
    if not self.num_coordinates:
      return x
    op = sketches.block_srht(self.num_coordinates)
    like = jax.ShapeDtypeStruct((d,), x.dtype)
    return op.desketch(jax.random.fold_in(key, 0), x, like)

  def _rotated(self, key, x):
    """Return the n numbers that are quantised."""
    if not self.rotate:
      return x
    if self.num_coordinates:
      base.check_fits(self.num_coordinates, x.size, 'num_coordinates')
      op = sketches.block_srht(self.num_coordinates)
      x = op.sketch(jax.random.fold_in(key, 0), x)
    return rotation.rotate(key, x)

  def _width(self, n: int) -> int:  # of the numbers with one scale
    return rotation.BLOCK if self.rotate else n


def _nearest(u, centroids):
  """Return the bits and the nearest centroids of u of mean square 1."""
  levels = np.array(centroids, np.float32)
  index = jnp.zeros(u.shape, jnp.int32)
  for end in (levels[1:] + levels[:-1]) / 2:
    index += jnp.abs(u) > end
  count = len(centroids).bit_length() - 1
  bits = [index >> i & 1 for i in reversed(range(count))]
  planes = jnp.stack([u < 0, *(bit > 0 for bit in bits)])
  return planes, _values(planes, centroids)


def _values(planes, centroids):
  """Return the centroids that bits [bits, ...] name: f32[...]."""
  index = jnp.zeros(planes.shape[1:], jnp.int32)
  for bit in planes[1:]:
    index = 2 * index + bit
  size = jnp.array(centroids, jnp.float32)[index]
  return jnp.where(planes[0] > 0, -size, size)
