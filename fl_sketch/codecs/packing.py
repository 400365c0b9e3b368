"""Pack integers from -bound to bound, or below 2^bits, into few bits each."""

import jax
import jax.numpy as jnp


def pack(q: jax.Array, bound: int) -> jax.Array:
  """Pack integers f32[n], clipped to a bound below 2**15, into few bits.

  2 or 4 bits each, packed into uint8; int8[n] for bounds from 8 on, int16[n]
  from 128 on.

  >>> pack(jnp.array([-1.0, 0.0, 1.0, 1.0, 0.0]), 1)
  Array([164,   1], dtype=uint8)
  """
  bits = _bits(bound)
  # Clipped as integers: the conversion of a NaN is undefined.
  q = jnp.clip(q.astype(jnp.int32), -bound, bound)
  if bits >= 8:
    return q.astype(f'int{bits}')
  codes = (q + bound).astype(jnp.uint8)
  codes = jnp.pad(codes, (0, -q.size % (8 // bits))).reshape(-1, 8 // bits)
  return (codes << _shifts(bits)).sum(1, dtype=jnp.uint8)


def unpack(packed: jax.Array, bound: int, n: int) -> jax.Array:
  """Undo `pack`: f32[n]."""
  bits = _bits(bound)
  if bits >= 8:
    return packed.astype(jnp.float32)
  codes = packed[:, None] >> _shifts(bits) & jnp.uint8(2**bits - 1)
  return codes.ravel()[:n].astype(jnp.float32) - bound


def pack_bits(codes: jax.Array, bits: int) -> jax.Array:
  """Pack integers below 2^bits without gaps, the highest bit first.

  >>> pack_bits(jnp.array([5, 1, 4095]), 12).tolist()
  [0, 80, 1, 255, 240]
  """
  return jnp.packbits(codes[:, None] >> _places(bits) & 1 > 0)


def unpack_bits(packed: jax.Array, bits: int, n: int) -> jax.Array:
  """Undo `pack_bits`: int32[n]."""
  rows = jnp.unpackbits(packed, count=n * bits).reshape(n, bits)
  return (rows.astype(jnp.int32) << _places(bits)).sum(1, dtype=jnp.int32)


def _bits(bound):
  return next(bits for bits in (2, 4, 8, 16) if bound < 2 ** (bits - 1))


_places = lambda bits: jnp.arange(bits - 1, -1, -1)[None]
_shifts = lambda bits: jnp.arange(0, 8, bits, dtype=jnp.uint8)[None]
