"""Sparsification: top-k, random-k and quantised top-k coordinates."""

import dataclasses
from typing import Annotated

from fl_sketch.codecs import base, packing
from fl_sketch.sketches import hashing
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp

# Without `jit` the loops of `hashing` would be compiled at every call.
_sample = jax.jit(hashing.sample, static_argnums=(1, 2))


@dataclasses.dataclass(frozen=True)
class top_k(base.SparseCodec):
  """Send the k largest magnitudes: delta = k / d, reached by equal ones.

  Ties go to the lower coordinate, and a NaN precedes all numbers. The payload
  is (values f32[k], at int32[k]). Raises ValueError unless 1 <= k <= d.

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
  payload is f32[k]. Raises ValueError unless 1 <= k <= d.

  >>> rand_k(2).encode(jax.random.key(0), jnp.ones(8)).tolist()
  [4.0, 4.0]

  Source: as of `TopK`.
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

  Guarantee: delta = (k / d) 4 m^2 / (4 m^2 + bucket - 1): the largest value of
  a bucket is exact, and others err by at most min(|v|, s / (2 m)).

  >>> codec = quantized_top_k(4, bits=2, bucket=2)
  >>> [x.shape for x in codec.encode(jax.random.key(0), jnp.ones(9))]
  [(1,), (2,), (4,)]

  The payload is (uint8[ceil(k bits / 8)], or int8[k] for 8 bits; scales f32[k /
  bucket]; coordinates int32[k]). Raises ValueError unless 1 <= k <= d, bits is
  2, 4 or 8, and bucket divides k.

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
