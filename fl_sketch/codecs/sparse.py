"""Sparsification: k coordinates of a vector, or of every chunk of it."""

import dataclasses
import math
from typing import Annotated

from fl_sketch.codecs import base, packing
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import leaf_type
from fl_sketch.sketches.primitives import product
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import numpy as np

# Without `jit` the loops of `hashing` would be compiled at every call.
_sample = jax.jit(hashing.sample, static_argnums=(1, 2))


@dataclasses.dataclass(frozen=True)
class top_k(base.SparseCodec):
  """Send the k largest magnitudes: delta = k / d, reached by equal ones.

  Ties go to the lower coordinate, and a NaN precedes all numbers. The payload
  is (values f32[k], at int32[k]).

  >>> top_k(1).encode(jax.random.key(0), jnp.array([1.0, -9.0]))
  (Array([-9.], dtype=float32), Array([1], dtype=int32))

  Source: Stich, Cordonnier, Jaggi (NeurIPS 2018, arXiv:1809.07599).
  """

  contraction = base.law(lambda self, d: self.k / d)

  def encode_vector(self, key, x):
    return base.largest(x, self.k)

  def decode_vector(self, key, payload, d):
    return base.scattered(d, *payload)


@dataclasses.dataclass(frozen=True)
class rand_k(base.SparseCodec):
  """Send k random coordinates times d / k: unbiased, omega = d / k - 1.

  The coordinates are distinct and drawn from the key, so they are not sent: the
  payload is f32[k].

  >>> rand_k(2).encode(jax.random.key(0), jnp.ones(8)).tolist()
  [4.0, 4.0]

  Source: as of `top_k`.
  """

  omega = base.law(lambda self, d: d / self.k - 1)

  def encode_vector(self, key, x):
    return x[_sample(key, self.k, x.size)] * (x.size / self.k)

  def decode_vector(self, key, payload, d):
    return base.scattered(d, payload, _sample(key, self.k, d))


@dataclasses.dataclass(frozen=True)
class quantized_top_k(base.SparseCodec):
  r"""Top-k with values rounded to m = 2^(bits - 1) - 1 fractions of a maximum.

  In the order of decreasing magnitude, every `bucket` values share one scale s,
  their largest; :math:`v` becomes :math:`s\,\mathrm{round}(m v / s) / m`.

  Guarantee: delta = (k / d) 4 m^2 / (4 m^2 + bucket - 1).

  The payload is (uint8[ceil(k bits / 8)], or int8[k] for 8 bits; scales f32[k /
  bucket]; coordinates int32[k]). Raises ValueError unless bucket divides k.

  Source: CocktailSGD (Wang et al., ICML 2023), its compressor.
  """

  bits: Annotated[int, fields.Rule('2, 4 or 8', (2, 4, 8).__contains__)]
  bucket: fields.Count

  def __post_init__(self):
    super().__post_init__()
    if self.k % self.bucket:
      raise ValueError(f'{self.k=} must be a multiple of {self.bucket=}.')

  @property
  def _bound(self) -> int:
    return 2 ** (self.bits - 1) - 1

  @base.law
  def contraction(self, d):
    squares = 4 * self._bound**2
    return self.k / d * (squares / (squares + self.bucket - 1))

  def encode_vector(self, key, x):
    values, support = base.largest(x, self.k)
    rows = values.reshape(-1, self.bucket)
    scale = jnp.abs(rows).max(1)
    q = jnp.round(base.fraction(rows, scale[:, None]) * self._bound)
    return packing.pack(q.ravel(), self._bound), scale, support

  def decode_vector(self, key, payload, d):
    packed, scale, support = payload
    q = packing.unpack(packed, self._bound, self.k)
    rows = q.reshape(-1, self.bucket) / self._bound
    return base.scattered(d, (scale[:, None] * rows).ravel(), support)


@dataclasses.dataclass(frozen=True)
class chunked_top_k(base.SparseCodec):
  r"""Send the k largest magnitudes of each chunk, in `bits` bits each.

  A chunk is `chunk` numbers in a row; the last one is filled up with zeros.
  With s the largest magnitude of a chunk, :math:`L = 2^{bits - 1}` equal cells
  divide [0, s]. Sent are each value's sign, cell and place in the chunk, and of
  each cell the mean magnitude, which is decoded.

  Guarantee: delta = (k / w) (16 / 9) / (1 + sqrt(1 + 8 (k - 1) / (9 L^2))), for
  w the smaller of `chunk` and d, by Kantorovich's inequality in each cell.

  The payload is (places of ceil(log2 w) bits and signs and cells of `bits`,
  each packed into uint8; means f32[chunks, L]). Raises ValueError if k > chunk.

  Source: SparseLoCo (Sarfi, Therien, Lidin, Belilovsky, arXiv:2508.15706):
  `fedcom` with this codec, ``error_feedback``, a ``residual_decay`` of 0.95,
  AdamW on clients and 'sgd' on the server; k is 1 to 3 % of a chunk. Their code
  cuts each array by itself, and has cells in units of its standard deviation.
  """

  chunk: fields.Count = 4096
  bits: Annotated[int, fields.Rule('2, 3 or 4', (2, 3, 4).__contains__)] = 2

  def __post_init__(self):
    super().__post_init__()
    base.check_fits(self.k, self.chunk, of='chunk')

  @property
  def _levels(self) -> int:
    return 2 ** (self.bits - 1)

  @base.law
  def contraction(self, d):
    root = (1 + 8 * (self.k - 1) / (9 * self._levels**2)) ** 0.5
    return self.k / min(self.chunk, d) * (16 / 9) / (1 + root)

  def encode_vector(self, key, x):
    levels = self._levels
    places, values = _sent(base.rows(x, self.chunk), self.k)
    size = jnp.abs(values)
    scale = size.max(1, keepdims=True)
    part = base.fraction(size, scale)
    cell = jnp.ceil(part * levels).astype(jnp.int32) - 1
    cell = jnp.clip(cell, 0, levels - 1)
    member = jax.nn.one_hot(cell, levels, dtype=part.dtype)
    # Of fractions: their sum cannot overflow. A NaN spreads to all cells.
    total = (member * part[..., None]).sum(1)
    means = total / jnp.maximum(member.sum(1), 1) * scale
    codes = (cell + levels * (values < 0)).ravel()
    return places, packing.pack_bits(codes, self.bits), means

  def decode_vector(self, key, payload, d):
    places, codes, means = payload
    codes = packing.unpack_bits(codes, self.bits, means.shape[0] * self.k)
    codes = codes.reshape(-1, self.k)
    size = jnp.take_along_axis(means, codes % self._levels, 1)
    values = jnp.where(codes < self._levels, size, -size)
    return _scattered(values, places, self.chunk, d).ravel()[:d]


@dataclasses.dataclass(frozen=True)
class dct_top_k(base.SparseCodec):
  """Send the k largest coefficients of each chunk's cosine transform.

  The transform is the orthonormal DCT-II, a product with f32[w, w]; chunks are
  those of `chunked_top_k`. A chunk keeps k / w of its energy or more, w the
  smaller of `chunk` and d: delta = k / w.

  The payload is (places of ceil(log2 w) bits, packed into uint8; f32[chunks,
  k]). Raises ValueError if k > chunk.

  Source: DeMo (Peng, Quesnelle, Kingma, arXiv:2411.19870), but for its blocks;
  see `dct_blocks`.
  """

  chunk: fields.Count = 64
  contraction = base.law(lambda self, d: self.k / min(self.chunk, d))

  def __post_init__(self):
    super().__post_init__()
    base.check_fits(self.k, self.chunk, of='chunk')

  def encode_vector(self, key, x):
    rows = base.rows(x, self.chunk)
    return _sent(product(rows, _cosines(rows.shape[1]).T), self.k)

  def decode_vector(self, key, payload, d):
    places, values = payload
    rows = _scattered(values, places, self.chunk, d)
    return product(rows, _cosines(rows.shape[1])).ravel()[:d]


@dataclasses.dataclass(frozen=True)
class dct_blocks(base.Codec):
  r"""Send the k largest DCT coefficients of each block of each array.

  Of each array by itself, a matrix with the array's last axis, blocks whose
  sides are the largest divisors of its sides up to `side`; a vector is one row.
  :math:`C_h B C_w^T` of a block B, with the orthonormal DCT-II as C, keeps its
  k largest entries, or all that it has.

  Guarantee: delta = k / n, n the numbers of the largest block.

  The payload has for each array (places of ceil(log2 n) bits, packed into
  uint8; f32[blocks, k]), n that of its blocks. Raises ValueError if k > side^2.

  Source: DeMo (Peng, Quesnelle, Kingma, arXiv:2411.19870), the authors' code.
  """

  k: fields.Count
  side: fields.Count = 64

  def __post_init__(self):
    super().__post_init__()
    base.check_fits(self.k, self.side**2, of='side^2')

  @property
  def contraction(self):
    def delta(like):
      is_size = isinstance(like, int)
      arrays = jax.tree.leaves(like)
      shapes = [(like,)] if is_size else [np.shape(x) for x in arrays]
      blocks = (math.prod(self._grid(shape)[1::2]) for shape in shapes)
      return min(1.0, self.k / max(blocks))

    return delta

  def encode(self, key, tree):
    return jax.tree.map(lambda x: self._encode_array(jnp.asarray(x)), tree)

  def decode(self, key, payload, like):
    decode = lambda x, sent: self._decode_array(leaf_type(x), sent)
    return jax.tree.map(decode, like, payload)

  def _grid(self, shape) -> tuple[int, int, int, int]:
    """Cut a matrix into blocks: (rows of blocks, height, columns, width)."""
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    sizes = range(1, self.side + 1)
    height, width = (
      max(n for n in sizes if x % n == 0) for x in (rows, columns)
    )
    return rows // height, height, columns // width, width

  def _encode_array(self, x):
    grid = self._grid(x.shape)
    _, h, _, w = grid
    blocks = x.astype(jnp.float32).reshape(grid).swapaxes(1, 2)
    coefficients = product(_cosines(h), product(blocks, _cosines(w).T))
    return _sent(coefficients.reshape(-1, h * w), min(self.k, h * w))

  def _decode_array(self, like, payload):
    grid, (places, values) = self._grid(like.shape), payload
    across, h, along, w = grid
    rows = _scattered(values, places, h * w, h * w)
    blocks = rows.reshape(across, along, h, w)
    x = product(_cosines(h).T, product(blocks, _cosines(w))).swapaxes(1, 2)
    return x.reshape(like.shape).astype(like.dtype)


def _sent(rows, k):
  values, places = base.largest(rows, k)
  bits = (rows.shape[1] - 1).bit_length()
  return packing.pack_bits(places.ravel(), bits), values


def _scattered(values, places, chunk, d):
  width = min(chunk, d)
  places = packing.unpack_bits(places, (width - 1).bit_length(), values.size)
  rows = jnp.zeros((len(values), width), values.dtype)
  at = jnp.arange(len(values))[:, None], places.reshape(values.shape)
  return rows.at[at].set(values)


def _cosines(n) -> np.ndarray:
  """Return the orthonormal DCT-II as a matrix, f32[n, n]."""
  frequency, time = np.arange(n)[:, None], np.arange(n)[None]
  rows = np.cos(np.pi * frequency * (2 * time + 1) / (2 * n))
  rows[0] /= 2**0.5
  return ((2 / n) ** 0.5 * rows).astype(np.float32)
