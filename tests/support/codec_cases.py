"""The conformance list of codecs; at d = 57, which 2, 4 or 8 do not divide."""

import functools
import math
from typing import NamedTuple

from fl_sketch import codecs
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, mean_and_error
import pytest
from scipy import special

D = 57
FEW, DRAWS = 2000, 20_000  # in the fast tier, where it spares time, and all
LIKE = jax.ShapeDtypeStruct((D,), jnp.float32)


class Facts(NamedTuple):
  """A codec, and by hand the bytes of its payload and its laws at d = 57."""

  codec: codecs.Codec
  nbytes: int
  omega: float | None = None
  contraction: float | None = None
  random: bool = False  # whether another key gives another decoded tree
  slack: float = 0.0  # relative, above a law that holds as d grows


RAND_K, QSGD = codecs.rand_k(8), codecs.qsgd(1)
QUANTIZED = codecs.quantized_top_k
ROOT = D**0.5
U = 2**-7  # of bfloat16: from one number to the next, in units of 2^e
UPPER = U**2 / (4 * (1 + U))


def scaled(others: int, m: int) -> float:
  """Omega of m steps up to the largest of `others` + 1 numbers."""
  return (math.sqrt(1 + others / m**2) - 1) / 2


def lloyd(bits: int) -> tuple[np.ndarray, float]:
  """The best 2^bits centroids of N(0, 1), by iteration, and what they lose."""
  phi = lambda x: np.exp(-np.square(x) / 2) / np.sqrt(2 * np.pi)
  centroids = np.linspace(-1.5, 1.5, 2**bits)
  for _ in range(5000):
    ends = np.array([-np.inf, *(centroids[1:] + centroids[:-1]) / 2, np.inf])
    masses = np.diff(special.ndtr(ends))
    centroids = -np.diff(phi(ends)) / masses
  return centroids, 1 - (masses * centroids**2).sum()


def cells(k: int, levels: int) -> float:
  """The share of k values' energy that means of cells keep: 2 y at the worst y.

  Let the largest value be 1. Of its energy S a cell of n values with mean m
  keeps n m^2: above the lowest cell n m^2 >= 8/9 S (Kantorovich), and the
  energies are 1 or more; in the lowest S <= n m / L. With N = (k - 1) / L^2 and
  y = L m the kept share is at least (8/9 + N y^2) / (1 + N y), whose minimum is
  2 y, where N y^2 + 2 y = 8/9.
  """
  n = (k - 1) / levels**2
  return 2 * np.roots([n, 2, -8 / 9]).max()


LOSS = [lloyd(bits)[1] for bits in range(1, 5)]  # 1, 2, 3 and 4 bits
BYTE, NIBBLES = scaled(56, 127), scaled(7, 7)
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
  # Four chunks of three, places of four bits; one chunk, places of six.
  'chunked': Facts(codecs.chunked_top_k(3, 16), 6 + 3 + 4 * 2 * 4, None,
    3 / 16 * cells(3, 2)),
  'chunked_4_bits': Facts(codecs.chunked_top_k(5, bits=4), 4 + 3 + 8 * 4, None,
    5 / D * cells(5, 8)),
  'cosines': Facts(codecs.dct_top_k(2, 8), 6 + 8 * 2 * 4, None, 2 / 8),
  'blocks': Facts(codecs.dct_blocks(2, 32), 4 + 3 * 2 * 4, None, 2 / 19),
  'bfloat16': Facts(codecs.bfloat16(), 57 * 2, UPPER, 1 - UPPER, True),
  'int8': Facts(codecs.int8(), 57 + 4, BYTE, 1 - BYTE, True),
  'int4_blocks': Facts(codecs.int4(8), 29 + 8 * 4, NIBBLES, 1 - NIBBLES, True),
  'eden': Facts(codecs.eden(), 8 + 4, LOSS[0] / (1 - LOSS[0]), None, True,
    0.02),
  'eden_kept': Facts(codecs.eden(3, num_coordinates=20), 3 * 3 + 4,
    D / 20 / (1 - LOSS[2]) - 1, None, True, 0.02),
  'eden_nearest': Facts(codecs.eden(2, scale='least_squares'), 2 * 8 + 4, None,
    1 - LOSS[1], True, 0.02),
  'eden_table': Facts(codecs.eden(4, rotate=False), 4 * 8 + 4),
  'eden_table_nearest': Facts(codecs.eden(rotate=False, scale='least_squares'),
    8 + 4, None, 1 / D),
  'small_rand_k': Facts(codecs.contract(RAND_K), 8 * 4, None, 8 / D, True),
  'small_qsgd': Facts(codecs.contract(QSGD), 19, None, 1 / (1 + ROOT), True),
}  # fmt: skip
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
def _lanes(name):
  codec = CODECS[name].codec

  def one(key_data, x):
    key = jax.random.wrap_key_data(key_data)
    payload = codec.encode(key, x)
    return payload, codec.decode(key, payload, x)

  return operators.jit(jax.vmap(one))


def lanes(name, keys, xs):
  """Payloads and what is decoded of f32[n, d], each under its key."""
  return operators.in_lanes(_lanes(name), FEW, keys, xs)


def draws(name, x, count=DRAWS):
  """What is decoded of a vector, a key each: f64[count, d]."""
  keys = jax.random.split(KEY, count)
  return np.float64(lanes(name, keys, np.tile(x, (count, 1)))[1])


def squared_error(name, x, count=DRAWS):
  """Mean over keys of ||decode - x||^2 / ||x||^2, and its standard error."""
  errors = np.square(draws(name, x, count) - x).sum(1) / np.square(x).sum()
  return mean_and_error(errors)


each_count = pytest.mark.parametrize(
  'count', [FEW, pytest.param(DRAWS, marks=pytest.mark.nightly)]
)
# A codec of each way to encode: laws that compile programs of their own are
# fast for these, and nightly for all others.
STRUCTURES = {
  'qsgd_7': 'levels, packed',
  'top_4_bits': 'levels and indices',
  'bfloat16': 'numbers of another type',
  'int4_blocks': 'blocks, of which the last is short',
}
# Rotations are compiled slowly: 'eden' and 'eden_table' stand for the others.
FAST = CODECS.keys() - {'eden_kept', 'eden_nearest', 'eden_table_nearest'}
law = functools.partial(operators.law, group='codec')
each, each_structure = law(CODECS, FAST), law(CODECS, STRUCTURES)
stating = lambda constant: [
  n for n, f in CODECS.items() if getattr(f, constant) is not None
]
unbiased = law(stating('omega'), FAST - {'eden'})
contracting = law(stating('contraction'), FAST)
