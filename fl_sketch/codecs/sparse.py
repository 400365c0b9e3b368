"""Sparsification: top-k, random-k and quantised top-k coordinates."""

from fl_sketch import sketches
from fl_sketch.codecs import base, packing
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import check_positive, dimension
import jax
from jax import lax
import jax.numpy as jnp

# Eagerly the loops of `hashing` are compiled at every call, by `jit` once.
_sample = jax.jit(hashing.sample, static_argnums=(1, 2))


def top_k(k: int) -> base.Codec:
  """Send the k largest magnitudes: delta = k / d, reached by equal ones.

  Ties go to the lower coordinate, and a NaN precedes all numbers.

  >>> top_k(1).encode(jax.random.key(0), jnp.array([1.0, -9.0]))
  (Array([-9.], dtype=float32), Array([1], dtype=int32))

  Args:
    k: how many, 1 <= k <= d.

  Returns:
    A `Codec` with payload (f32[k], int32[k]), values and coordinates;
    ValueError if k > d.

  Raises:
    ValueError: k is below 1.

  Source: Stich, Cordonnier, Jaggi (NeurIPS 2018, arXiv:1809.07599).
  """
  check_positive(k=k)

  def encode(key, tree):
    base.check_fits(k, tree)
    return _largest(base.flat(key, tree), k)

  def decode(key, payload, like):
    base.check_fits(k, like)
    values, support = payload
    return sketches.scatter(like, support, values)

  return base.Codec(encode, decode, 'top_k', None, lambda d: k / dimension(d))


def rand_k(k: int) -> base.Codec:
  """Send k random coordinates times d / k: unbiased, omega = d / k - 1.

  The coordinates are distinct and drawn from the key, so they are not sent.

  >>> rand_k(2).encode(jax.random.key(0), jnp.ones(8)).tolist()
  [4.0, 4.0]

  Args:
    k: how many, 1 <= k <= d.

  Returns:
    A `Codec` with payload f32[k]; ValueError if k > d.

  Raises:
    ValueError: k is below 1.

  Source: as of `top_k`.
  """
  check_positive(k=k)

  def encode(key, tree):
    d = base.check_fits(k, tree)
    return base.flat(key, tree)[_sample(key, k, d)] * (d / k)

  def decode(key, payload, like):
    d = base.check_fits(k, like)
    return sketches.scatter(like, _sample(key, k, d), payload)

  omega = lambda d: dimension(d) / k - 1
  return base.Codec(encode, decode, 'rand_k', omega, None)


def quantized_top_k(k: int, bits: int, bucket: int) -> base.Codec:
  r"""Top-k with values rounded to m = 2^(bits - 1) - 1 fractions of a maximum.

  In the order of decreasing magnitude, every `bucket` values share one scale s,
  their largest; :math:`v` becomes :math:`s\,\mathrm{round}(m v / s) / m`.

  Guarantee: delta = (k / d) 4 m^2 / (4 m^2 + bucket - 1). The largest value of
  a bucket is exact and 0 is a level, so that another v errs by e <= min(|v|,
  c), c = s / (2 m). Hence the sum of e^2 is at most its share f / (s^2 + f) of
  the bucket's sum of squares, with f = (bucket - 1) c^2.

  >>> codec = quantized_top_k(4, bits=2, bucket=2)
  >>> [x.shape for x in codec.encode(jax.random.key(0), jnp.ones(9))]
  [(1,), (2,), (4,)]

  Args:
    k: how many, 1 <= k <= d.
    bits: of a value: 2, 4 or 8.
    bucket: how many values share a scale; divides k.

  Returns:
    A `Codec` with payload (uint8[ceil(k bits / 8)], or int8[k] for 8 bits;
    scales f32[k / bucket]; coordinates int32[k]); ValueError if k > d.

  Raises:
    ValueError: an argument is not as stated.

  Source: CocktailSGD (Wang et al., ICML 2023), its compressor.
  """
  check_positive(k=k, bucket=bucket)
  if bits not in (2, 4, 8):
    raise ValueError(f'{bits=} must be 2, 4 or 8.')
  if k % bucket:
    raise ValueError(f'{k=} must be a multiple of {bucket=}.')
  bound = 2 ** (bits - 1) - 1

  def encode(key, tree):
    base.check_fits(k, tree)
    values, support = _largest(base.flat(key, tree), k)
    rows = values.reshape(-1, bucket)
    scale = jnp.abs(rows).max(1)
    q = jnp.round(base.fraction(rows, scale[:, None]) * bound)
    return packing.pack(q.ravel(), bound), scale, support

  def decode(key, payload, like):
    base.check_fits(k, like)
    packed, scale, support = payload
    rows = packing.unpack(packed, bound, k).reshape(-1, bucket) / bound
    return sketches.scatter(like, support, (scale[:, None] * rows).ravel())

  share = 4 * bound**2 / (4 * bound**2 + bucket - 1)
  delta = lambda d: k / dimension(d) * share
  return base.Codec(encode, decode, 'quantized_top_k', None, delta)


def _largest(x, k):
  support = lax.top_k(jnp.abs(x), k)[1]
  return x[support], support
