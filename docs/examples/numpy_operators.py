"""The sketches and codecs that the library has not in NumPy."""

from fl_sketch.sites import numpy_codecs, numpy_draws as draws, numpy_sparse
from fl_sketch.sites.numpy_draws import ENTRY, seeds, word
from fl_sketch.sites.numpy_rotation import normal
import numpy as np
import numpy_client as base
from numpy_client import counter, hashed, kwise, signs


def sparse_embedding_2(key, x, size, sparsity):
  """Return the table [size]."""
  table = base.count_sketch(key, x, sparsity, size // sparsity)
  return table.ravel() / sparsity**0.5


def sparse_embedding_1(key, x, size, sparsity):
  """Return the table [size]."""
  rows, (words, signed) = [], hashed(key, x, sparsity)
  for limit, w in zip(range(size - sparsity, size), words, strict=True):
    row = w % (limit + 1)
    repeated = np.any([row == other for other in rows], axis=0)
    rows.append(np.where(repeated, limit, row))
  table = np.bincount(np.ravel(rows), np.ravel(signed), size)
  return table / sparsity**0.5


def ams(key, x, size):
  """Return the table [size]."""
  words = [*kwise(key, -(-size // 31), 4, draws.SIGN, counter(x))]
  rows = [signs(words[j // 31], 1 + j % 31) for j in range(size)]
  return np.array(rows) @ x / size**0.5


def gaussian(key, x, size):
  """Return the table [size]."""
  words = [word(counter(x), seed) for seed in seeds(key, size, ENTRY)]
  return normal(np.array(words)) @ x / size**0.5


def uniform_sampling(key, x, size):
  """Return the table [size]."""
  return (len(x) / size) ** 0.5 * x[draws.sample(key, size, len(x))]


def fourier(key, x, size):
  """Return rows of the transform, which they are, and how many there are."""
  d, parts = len(x), 1
  while 2 * parts <= min(d // (8 * size), d // 4096):
    parts *= 2
  m = -(-d // parts)
  while d > 4096 and pow(210, 31, m):  # until m has no other prime factor
    m += 1
  rows = draws.sample(key, size, parts * m)
  x = base.signed(key, x, parts * m).reshape(parts, m).T.ravel()
  return np.fft.fft(x)[rows] / size**0.5, rows, parts * m


def dct(key, x, size):
  """Return the table [size]."""
  y, rows, n = fourier(key, x, size)
  y = (np.exp(-0.5j * np.pi / n * rows) * y).real
  return np.where(rows, 2**0.5, 1) * y


def fraction(x, scale):
  """Return x / scale, 0 where the scale is 0."""
  return x / np.where(scale > 0, scale, 1)


def top_k(x, k):
  """Return the k largest of rows, and their places."""
  at = np.argsort(-np.abs(x), -1, kind='stable')[..., :k]
  return np.take_along_axis(x, at, -1), at


def pack(q, bound):
  """Pack whole numbers up to a bound into 2, 4, 8 or 16 bits each."""
  width = 2 if bound < 2 else 4
  if bound > 7:
    return q.astype('i1' if bound < 128 else 'i2')
  codes = np.append(q + bound, np.zeros(-len(q) % (8 // width))).astype('u1')
  codes = codes.reshape(-1, 8 // width) << np.arange(0, 8, width, 'u1')
  return codes.sum(1, dtype='u1')


def pack_bits(codes, width):
  """Pack whole numbers below 2^width without gaps."""
  return np.packbits(codes.ravel()[:, None] >> np.arange(width)[::-1] & 1)


def int4(key, x, block=64):
  """Return (packed levels, scales)."""
  rows = chunks(abs(x), block)
  scale = rows.max(1)
  steps = (fraction(rows, scale[:, None]) * 7).ravel()[: len(x)]
  level = np.floor(steps) + (draws.uniform(key, len(x)) < steps % 1)
  return pack(np.copysign(level, x), 7), scale


def qsgd(key, x, levels):
  """Return (packed levels, norm)."""
  norm = np.linalg.norm(x)
  uniform = draws.uniform(key, len(x))
  level = np.floor(abs(fraction(x, norm)) * levels + uniform)
  return pack(np.copysign(level, x), levels), norm


def shared_sign(key, x, bound):
  """Return the bits."""
  return [np.packbits(bound * (2 * draws.uniform(key, len(x)) - 1) < x)]


def quantized_top_k(key, x, k, bits, bucket):
  """Return (packed values, scales, coordinates)."""
  values, at = top_k(x, k)
  rows, bound = values.reshape(-1, bucket), 2 ** (bits - 1) - 1
  scale = abs(rows).max(1)
  q = np.round(fraction(rows, scale[:, None]) * bound)
  return pack(q.ravel(), bound), scale, at


def chunks(x, chunk):
  """Return the rows [chunks, w]."""
  width = min(chunk, len(x))
  return np.append(x, np.zeros(-len(x) % width)).reshape(-1, width)


def dct_top_k(key, x, k, chunk=64):
  """Return (places, values)."""
  rows = chunks(x, chunk)
  i, w = np.arange(rows.shape[1]), rows.shape[1]
  cosines = np.cos(np.pi / (2 * w) * i * (2 * i[:, None] + 1))
  cosines *= np.where(i, 2 / w, 1 / w) ** 0.5
  values, at = top_k(rows @ cosines, k)
  return pack_bits(at, (w - 1).bit_length()), values


def dct_blocks(key, x, k, side=64):
  """Return (places, values) of a vector, whose blocks are of one row."""
  width = max(n for n in range(1, side + 1) if len(x) % n == 0)
  return dct_top_k(key, x, min(k, width), width)


def eden(key, x, num_coordinates=None, scale='unbiased', **options):
  """Return (planes of bits, scales)."""
  codec = numpy_codecs.eden(scale=scale, **options)
  if num_coordinates is None:
    return codec.encode(key, np.float32(x))
  table = base.block_srht(draws.fold_in(key, 0), x, num_coordinates)
  planes, scales = codec.encode(key, np.float32(table))
  share = num_coordinates / len(x) if scale == 'least_squares' else 1
  return planes, scales * share


def bfloat16(key, x):
  """Return the upper halves, which have their name on the wire."""
  (upper,) = numpy_codecs.bfloat16().encode(key, np.float32(x))
  return [upper.view([('bfloat16', '<u2')])]


def of_library(name):
  """Return (key, x, options) -> payload of a codec of the library."""
  factory = getattr(numpy_codecs, name, None) or getattr(numpy_sparse, name)
  return lambda key, x, **o: factory(**o).encode(key, np.float32(x))


def layerwise(key, leaves, factory, sizes):
  """Return the tables of leaves of which each has its size of table."""
  tables = []
  for i, (x, size) in enumerate(zip(leaves, sizes, strict=True)):
    own = SKETCHES[factory if size < len(x) else 'identity']
    options = [size] if size < len(x) else []
    tables.append(own(draws.fold_in(key, i), x, *options))
  return tables


SKETCHES = {
  'identity': lambda key, x: x,
  'srft': lambda key, x, size: fourier(key, x, size)[0],
}
for function in (
  base.count_sketch, base.block_cyclic, base.srht, base.block_srht,
  sparse_embedding_1, sparse_embedding_2, ams, gaussian, uniform_sampling, dct,
  layerwise,
):  # fmt: skip
  SKETCHES[function.__name__] = function
CODECS = {
  'identity': lambda key, x: [x],
  'top_k': lambda key, x, k: top_k(x, k),
  'rand_k': lambda key, x, k: [x[draws.sample(key, k, len(x))] * len(x) / k],
}
for function in (
  int4, qsgd, shared_sign, quantized_top_k, dct_top_k, dct_blocks, eden,
  bfloat16,
):  # fmt: skip
  CODECS[function.__name__] = function
for kind in 'chunked_top_k', 'sign', 'int8':
  CODECS[kind] = of_library(kind)
