"""Sparsification: top-k, random-k and quantised top-k coordinates."""

from fl_sketch.codecs import base, packing
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import check_positive
import jax
import jax.numpy as jnp

# Without `jit` the loops of `hashing` would be compiled at every call.
_sample = jax.jit(hashing.sample, static_argnums=(1, 2))


def top_k(k: int) -> base.Codec:
  """Send the k largest magnitudes: delta = k / d, reached by equal ones.

  Ties go to the lower coordinate, and a NaN precedes all numbers. The payload
  is (values f32[k], at int32[k]). Raises ValueError unless 1 <= k <= d.

  >>> top_k(1).encode(jax.random.key(0), jnp.array([1.0, -9.0]))
  (Array([-9.], dtype=float32), Array([1], dtype=int32))

  Source: Stich, Cordonnier, Jaggi (NeurIPS 2018, arXiv:1809.07599).
  """
  check_positive(k=k)
  encode = lambda key, x: base.largest(x, k)
  decode = lambda key, payload, d: base.scattered(d, *payload)
  share = lambda d: k / d
  return base.of_vectors('top_k', encode, decode, contraction=share, k=k)


def rand_k(k: int) -> base.Codec:
  """Send k random coordinates times d / k: unbiased, omega = d / k - 1.

  The coordinates are distinct and drawn from the key, so they are not sent: the
  payload is f32[k]. Raises ValueError unless 1 <= k <= d.

  >>> rand_k(2).encode(jax.random.key(0), jnp.ones(8)).tolist()
  [4.0, 4.0]

  Source: as of `top_k`.
  """
  check_positive(k=k)
  encode = lambda key, x: x[_sample(key, k, x.size)] * (x.size / k)
  decode = lambda key, x, d: base.scattered(d, x, _sample(key, k, d))
  return base.of_vectors('rand_k', encode, decode, lambda d: d / k - 1, k=k)


def quantized_top_k(k: int, bits: int, bucket: int) -> base.Codec:
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
  check_positive(k=k, bucket=bucket)
  if bits not in (2, 4, 8):
    raise ValueError(f'{bits=} must be 2, 4 or 8.')
  if k % bucket:
    raise ValueError(f'{k=} must be a multiple of {bucket=}.')
  bound = 2 ** (bits - 1) - 1

  def encode(key, x):
    values, support = base.largest(x, k)
    rows = values.reshape(-1, bucket)
    scale = jnp.abs(rows).max(1)
    q = jnp.round(base.fraction(rows, scale[:, None]) * bound)
    return packing.pack(q.ravel(), bound), scale, support

  def decode(key, payload, d):
    packed, scale, support = payload
    rows = packing.unpack(packed, bound, k).reshape(-1, bucket) / bound
    return base.scattered(d, (scale[:, None] * rows).ravel(), support)

  share = 4 * bound**2 / (4 * bound**2 + bucket - 1)
  delta = lambda d: k / d * share
  return base.of_vectors('quantized_top_k', encode, decode, None, delta, k=k)
