"""The conformance list of codecs; at d = 57, which 2, 4 or 8 do not divide."""

import functools
import math
from typing import NamedTuple

from fl_sketch import codecs, sketches
import jax
import jax.numpy as jnp
import numpy as np
from operators import KEY, mean_and_error

D = 57
DRAWS = 20_000
LIKE = jax.ShapeDtypeStruct((D,), jnp.float32)


class Facts(NamedTuple):
  """A codec, the bytes of its payload at d = 57, and its laws there, by hand.

  Attributes:
    random: whether another key gives another decoded tree.
  """

  codec: codecs.Codec
  nbytes: int
  omega: float | None = None
  contraction: float | None = None
  random: bool = False


RAND_K, QSGD = codecs.rand_k(8), codecs.qsgd(1)
SKETCH = codecs.from_sketch(sketches.block_cyclic(8))
QUANTIZED = codecs.quantized_top_k
ROOT = D**0.5
U = 2**-7  # of bfloat16: from one number to the next, in units of 2^e
UPPER = U**2 / (4 * (1 + U))


def scaled(others: int, m: int) -> float:
  """Omega of m steps up to the largest of `others` + 1 numbers."""
  return (math.sqrt(1 + others / m**2) - 1) / 2


BYTE, BYTES = scaled(56, 127), scaled(15, 127)
NIBBLES = scaled(7, 7)
CODECS = {
  'identity': Facts(codecs.identity(), 57 * 4, 0.0, 1.0),
  'top_k': Facts(codecs.top_k(8), 8 * (4 + 4), None, 8 / D),
  'rand_k': Facts(RAND_K, 8 * 4, D / 8 - 1, None, True),
  'qsgd_1': Facts(QSGD, 15 + 4, ROOT, None, True),
  'qsgd_7': Facts(codecs.qsgd(7), 29 + 4, D / (4 * 7**2), None, True),
  'qsgd_8': Facts(codecs.qsgd(8), 57 + 4, D / (4 * 8**2), None, True),
  'qsgd_128': Facts(codecs.qsgd(128), 57 * 2 + 4, D / (4 * 128**2), None, True),
  'sign_l1': Facts(codecs.sign(), 8 + 4, None, 1 / D),
  'sign_l2': Facts(codecs.sign('l2'), 8 + 4),
  'top_2_bits': Facts(QUANTIZED(6, 2, 3), 2 + 8 + 24, None, 6 / D * 4 / 6),
  'top_4_bits': Facts(QUANTIZED(9, 4, 3), 5 + 12 + 36, None, 9 / D * 196 / 198),
  'top_8_bits': Facts(
    QUANTIZED(6, 8, 6), 6 + 4 + 24, None, 6 / D * 64516 / 64521
  ),
  'bfloat16': Facts(codecs.bfloat16(), 57 * 2, UPPER, 1 - UPPER, True),
  'int8': Facts(codecs.int8(), 57 + 4, BYTE, 1 - BYTE, True),
  'int8_blocks': Facts(codecs.int8(16), 57 + 4 * 4, BYTES, 1 - BYTES, True),
  'int4_blocks': Facts(codecs.int4(8), 29 + 8 * 4, NIBBLES, 1 - NIBBLES, True),
  'sketch': Facts(SKETCH, 8 * 4, 8 - 1, None, True),  # of 8 blocks, one short
  'small_rand_k': Facts(codecs.contract(RAND_K), 8 * 4, None, 8 / D, True),
  'small_qsgd': Facts(codecs.contract(QSGD), 19, None, 1 / (1 + ROOT), True),
  'small_sketch': Facts(codecs.contract(SKETCH), 8 * 4, None, 1 / 8, True),
}
rng = np.random.default_rng(0)
SIGNS = np.where(rng.random(D) < 0.5, -1.0, 1.0)
VECTORS = {
  'normal': rng.standard_normal(D),
  'flat': SIGNS,
  'spike': 3 * np.eye(D)[5],
  'power': rng.permutation(SIGNS * np.arange(1, D + 1) ** -1.0),
  'bounded': SIGNS * rng.uniform(0.5, 1.5, D),  # frequent at every level
}
VECTORS = {n: x.astype(np.float32) for n, x in VECTORS.items()}


def there_and_back(codec, like=LIKE):
  return lambda key, x: codec.decode(key, codec.encode(key, x), like)


@functools.cache
def lanes(name, keys_alone):
  """Maps keys, and vectors unless `keys_alone`, to what is decoded."""
  fn = lambda key, x: there_and_back(CODECS[name].codec, x)(key, x)
  return jax.jit(jax.vmap(fn, (0, None if keys_alone else 0)))


def draws(name, x):
  """What is decoded of a vector, a key each: f64[DRAWS, d]."""
  keys = jax.random.split(KEY, DRAWS)
  return np.asarray(lanes(name, True)(keys, x), np.float64)


def squared_error(name, x):
  """Mean over keys of ||decode - x||^2 / ||x||^2, and its standard error."""
  errors = np.square(draws(name, x) - x).sum(1) / np.square(x).sum()
  return mean_and_error(errors)
