"""The sketches and codecs that `numpy_client` leaves out, in NumPy alone."""

from statistics import NormalDist

import numpy as np
import numpy_client as base
from numpy_client import U, counter, fraction, hashed, kwise, seeds, word

ENTRY = 5


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
  words = [*kwise(key, -(-size // 31), 4, base.SIGN, counter(x))]
  rows = [base.signs(words[j // 31], 1 + j % 31) for j in range(size)]
  return np.array(rows) @ x / size**0.5


def normal(words):
  """Return the quantiles of N(0, 1) at the upper 23 bits of words."""
  quantile = np.vectorize(NormalDist().inv_cdf)
  return quantile(((words >> U(9)) + 0.5) / 2**23)


def gaussian(key, x, size):
  """Return the table [size]."""
  words = [word(counter(x), seed) for seed in seeds(key, size, ENTRY)]
  return normal(np.array(words)) @ x / size**0.5


def uniform_sampling(key, x, size):
  """Return the table [size]."""
  return (len(x) / size) ** 0.5 * x[base.sample(key, size, len(x))]


def fourier(key, x, size):
  """Return rows of the transform, which they are, and how many there are."""
  d, parts = len(x), 1
  while 2 * parts <= min(d // (8 * size), d // 4096):
    parts *= 2
  m = -(-d // parts)
  while d > 4096 and pow(210, 31, m):  # until m has no other prime factor
    m += 1
  rows = base.sample(key, size, parts * m)
  x = base.signed(key, x, parts * m).reshape(parts, m).T.ravel()
  return np.fft.fft(x)[rows] / size**0.5, rows, parts * m


def dct(key, x, size):
  """Return the table [size]."""
  y, rows, n = fourier(key, x, size)
  y = (np.exp(-0.5j * np.pi / n * rows) * y).real
  return np.where(rows, 2**0.5, 1) * y


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


def qsgd(key, x, levels):
  """Return (packed levels, norm)."""
  norm = np.linalg.norm(x)
  draws = base.uniform(key, x)
  level = np.floor(abs(fraction(x, norm)) * levels + draws)
  return pack(np.copysign(level, x), levels), norm


def shared_sign(key, x, bound):
  """Return the bits."""
  return [np.packbits(bound * (2 * base.uniform(key, x) - 1) < x)]


def quantized_top_k(key, x, k, bits, bucket):
  """Return (packed values, scales, coordinates)."""
  values, at = base.top_k(key, x, k)
  rows, bound = values.reshape(-1, bucket), 2 ** (bits - 1) - 1
  scale = abs(rows).max(1)
  q = np.round(fraction(rows, scale[:, None]) * bound)
  return pack(q.ravel(), bound), scale, at


def chunks(x, chunk):
  """Return the rows [chunks, w]."""
  width = min(chunk, len(x))
  return np.append(x, np.zeros(-len(x) % width)).reshape(-1, width)


def chunked_top_k(key, x, k, chunk=4096, bits=2):
  """Return (places, codes, means)."""
  rows, levels = chunks(x, chunk), 2 ** (bits - 1)
  values, at = base.top_k(key, rows, k)
  scale = abs(values).max(1, keepdims=True)
  part = fraction(abs(values), scale)
  cell = np.clip(np.ceil(part * levels).astype(int) - 1, 0, levels - 1)
  member = cell[..., None] == np.arange(levels)
  means = (member * part[..., None]).sum(1) / np.maximum(member.sum(1), 1)
  codes = pack_bits(cell + levels * (values < 0), bits)
  places = pack_bits(at, (rows.shape[1] - 1).bit_length())
  return places, codes, means * scale


def dct_top_k(key, x, k, chunk=64):
  """Return (places, values)."""
  rows = chunks(x, chunk)
  i, w = np.arange(rows.shape[1]), rows.shape[1]
  cosines = np.cos(np.pi / (2 * w) * i * (2 * i[:, None] + 1))
  cosines *= np.where(i, 2 / w, 1 / w) ** 0.5
  values, at = base.top_k(key, rows @ cosines, k)
  return pack_bits(at, (w - 1).bit_length()), values


def dct_blocks(key, x, k, side=64):
  """Return (places, values) of a vector, whose blocks are of one row."""
  width = max(n for n in range(1, side + 1) if len(x) % n == 0)
  return dct_top_k(key, x, min(k, width), width)


def turned(x, words, plane=0):
  """Return a pass over a block: signs, and an orthonormal transform."""
  return base.hadamard(x * base.signs(words, plane)) / len(x) ** 0.5


def rotated(key, x):
  """Return the vector, of which each block of 4,096 is rotated by itself."""
  y, own, places = np.array(x), seeds(key, 8, base.SIGN), np.arange(4096)
  cut = len(x) - len(x) % 4096
  for seed in own[:2]:
    for i in range(cut // 4096):
      words = word((i // 32 * 4096 + places).astype(U), seed)
      part = slice(4096 * i, 4096 * (i + 1))
      y[part] = turned(y[part], words, i % 32)
  if n := len(x) - cut:
    y[cut:] = rest_rotated(key, own[2:], y[cut:], n)
  return y


def rest_rotated(key, own, x, n):
  """Return the n numbers beyond the last block, rotated."""
  if n <= 32:
    words = word(np.arange(n * n, dtype=U), seeds(key, 1, ENTRY)[0])
    q, r = np.linalg.qr(normal(words).reshape(n, n))
    return (q * np.sign(np.diag(r))) @ x
  m = 1 << n.bit_length() - 1
  starts = [0, n - m][: 1 + (m < n)]
  for i, seed in enumerate(own[: 3 * len(starts)]):
    part = slice(starts[i % len(starts)], starts[i % len(starts)] + m)
    x[part] = turned(x[part], word(np.arange(m, dtype=U), seed))
    if i % 2 and m < n:
      x = np.append(x[::2], x[1::2])
  return x


def eden(key, x, bits=1, num_coordinates=None, rotate=True, scale='unbiased'):
  """Return (planes of bits, scales)."""
  if not rotate:
    return base.eden(key, x, bits, scale=scale)
  d, n = len(x), num_coordinates or len(x)
  if num_coordinates:
    x = base.block_srht(base.fold_in(key, 0), x, n)
  y = rotated(key, x)
  rows = [y[i : i + 4096] for i in range(0, n, 4096)]
  found = [base.eden(key, row, bits, scale=scale) for row in rows]
  planes, scales = zip(*found, strict=True)
  part = n / d if scale == 'least_squares' else 1
  return np.concatenate(planes, 1), np.array(scales) * part


def layerwise(key, leaves, factory, sizes):
  """Return the tables of leaves of which each has its size of table."""
  tables = []
  for i, (x, size) in enumerate(zip(leaves, sizes, strict=True)):
    own = SKETCHES[factory if size < len(x) else 'identity']
    options = [size] if size < len(x) else []
    tables.append(own(base.fold_in(key, i), x, *options))
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
  'identity': lambda key, x: [x], 'int8': base.int8, 'int4': base.int4,
  'rand_k': lambda key, x, k: [x[base.sample(key, k, len(x))] * len(x) / k],
}  # fmt: skip
for function in (
  base.top_k, base.sign, base.bfloat16, qsgd, shared_sign, quantized_top_k,
  chunked_top_k, dct_top_k, dct_blocks, eden,
):  # fmt: skip
  CODECS[function.__name__] = function
