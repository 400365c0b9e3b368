"""Codecs against NumPy twins: payload by payload, bit by bit."""

import itertools

import codec_cases
from codec_cases import CODECS, VECTORS, D
from fl_sketch import codecs, sketches
from fl_sketch.sites import numpy_draws, numpy_rotation
import jax
import numpy as np
import operators
from operators import KEY
import pytest
from scipy import fft, linalg

DATA = np.asarray(jax.random.key_data(KEY))


def packed_by_hand(q, bound):
  if bound > 7:
    return q
  bits = 2 if bound == 1 else 4
  packed = [0] * -(-len(q) * bits // 8)
  for i, value in enumerate(q):
    packed[i * bits // 8] += (int(value) + bound) << i * bits % 8
  return packed


def largest(x, k):
  support = np.argsort(-np.abs(x), kind='stable')[:k]
  return x[support], support


def scattered(values, support):
  out = np.zeros(D)
  out[support] = values
  return out


def top_k_twin(name, x):
  values, support = largest(x, 8)
  return (values, support), scattered(values, support)


def sign_twin(name, x):
  scale = np.abs(x).mean() if name == 'sign_l1' else np.square(x).mean() ** 0.5
  return (np.packbits(x < 0), scale), np.where(x < 0, -scale, scale)


def qsgd_twin(name, x):
  levels, norm = int(name.split('_')[1]), np.linalg.norm(x)
  draw = numpy_draws.uniform(DATA, len(x))
  q = np.sign(x) * np.floor(np.abs(x) / norm * np.float32(levels) + draw)
  return (packed_by_hand(q, levels), norm), norm * q / levels


def quantized_twin(name, x):
  shapes = {'top_2_bits': (6, 3, 1), 'top_4_bits': (9, 3, 7)}
  k, bucket, bound = shapes[name]
  values, support = largest(x, k)
  scales = np.abs(values[::bucket])  # the first of a bucket is its largest
  each = np.repeat(scales, bucket)
  q = np.round(values / np.where(each == 0, 1, each) * bound)
  out = scattered(each * q / bound, support)
  return (packed_by_hand(q, bound), scales, support), out


def bfloat16_twin(name, x):
  upper = np.uint32(2**24 * numpy_draws.uniform(DATA, len(x)))
  whole = x.view(np.uint32) + (upper >> 8) >> 16 << 16
  out = whole.view(np.float32)
  return (out,), out


def scaled_twin(name, x):
  m, block = (127, 57) if name == 'int8' else (7, 8)
  scales = [np.abs(x[i : i + block]).max() for i in range(0, D, block)]
  each = np.repeat(scales, block)[:D]
  steps = np.abs(x) / np.where(each == 0, 1, each) * np.float32(m)
  draw = numpy_draws.uniform(DATA, len(x))
  q = np.sign(x) * (np.floor(steps) + (draw < steps % 1))
  return (packed_by_hand(q, m), scales), each * q / m


def rotation_twin(n):
  """The matrix of the rotation of 57 numbers, or of 20."""
  if n < 33:
    rows = [numpy_rotation.rotate_rest(x, DATA, back=False) for x in np.eye(n)]
    q = np.transpose(rows)
    np.testing.assert_allclose(q @ q.T, np.eye(n), atol=1e-12)
    return q
  t, places = np.eye(n), np.arange(32, dtype=np.uint32)
  for i, seed in enumerate(numpy_draws.seeds(DATA, 8, 2)[2:]):
    flips = 1.0 - 2 * (numpy_draws.word(places, seed) >> 31)
    one, part = np.eye(n), slice(25 * (i % 2), 25 * (i % 2) + 32)
    one[part, part] = linalg.hadamard(32) / 32**0.5 * flips
    t = one @ t
    t = np.concatenate([t[::2], t[1::2]]) if i % 2 else t
  return t


def eden_twin(name, x):
  """The nearest of all centroids, signed ones too, by a table of distances."""
  bits, keep, nearest = {
    'eden': (1, D, False),
    'eden_kept': (3, 20, False),
    'eden_nearest': (2, D, True),
    'eden_table': (4, D, False),
    'eden_table_nearest': (1, D, True),
  }[name]
  t = np.eye(D)
  if keep < D:
    key = jax.random.fold_in(KEY, 0)
    t = operators.twin(sketches.block_srht(keep), D, key)
  if 'table' not in name:
    t = rotation_twin(keep) @ t
  y = t @ x.astype(np.float64)
  centroids, _ = codec_cases.lloyd(bits)
  half = centroids[len(centroids) // 2 :]
  u = y / (np.linalg.norm(y) / np.sqrt(keep))
  index = np.abs(np.abs(u)[:, None] - half[None]).argmin(1)
  planes = [u < 0, *(index >> i & 1 for i in reversed(range(bits - 1)))]
  q = np.where(u < 0, -half[index], half[index])
  if nearest:
    scale = y @ q / (q @ q) * keep / D
  else:
    scale = y @ y / (y @ q)
  return (np.packbits(planes, axis=1), scale), scale * t.T @ q


def bits_of(numbers, bits):
  """Numbers in a row, the highest bit first, filled up with zeros."""
  text = ''.join(f'{n:0{bits}b}' for n in numbers)
  text += '0' * (-len(text) % 8)
  return [int(text[i : i + 8], 2) for i in range(0, len(text), 8)]


def chunked_twin(name, x):
  k, chunk, bits = {'chunked': (3, 16, 2)}.get(name, (5, D, 4))
  levels, places, codes, means, out = 2 ** (bits - 1), [], [], [], []
  for start in range(0, D, chunk):
    row = np.zeros(chunk)
    row[: D - start] = x[start : start + chunk]
    values, support = largest(row, k)
    size, top = np.abs(values), np.abs(values).max() or 1
    cell = [max(0, int(np.ceil(v / top * levels)) - 1) for v in size]
    mean = np.zeros(levels)
    for level in set(cell):
      mean[level] = size[np.equal(cell, level)].mean()
    decoded = np.zeros(chunk)
    decoded[support] = np.where(values < 0, -1, 1) * mean[cell]
    places += list(support)
    codes += [c + levels * (v < 0) for c, v in zip(cell, values, strict=True)]
    means.append(mean)
    out.append(decoded)
  sizes = (chunk - 1).bit_length(), bits
  packed = map(bits_of, (places, codes), sizes)
  return (*packed, means), np.concatenate(out)[:D]


def cosines_twin(name, x):
  places, sent, out = [], [], []
  chunk = 19 if name == 'blocks' else 8  # 57 = 3 * 19
  for start in range(0, D, chunk):
    row = np.zeros(chunk)
    row[: D - start] = x[start : start + chunk]
    values, support = largest(fft.dct(row, norm='ortho'), 2)
    kept = np.zeros(chunk)
    kept[support] = values
    places += list(support)
    sent.append(values)
    out.append(fft.idct(kept, norm='ortho'))
  packed = bits_of(places, (chunk - 1).bit_length())
  return (packed, sent), np.concatenate(out)[:D]


@pytest.mark.nightly
def test_blocks_of_matrices_keep_their_largest_cosines():
  """Catches blocks that are cut or put back elsewhere, or turned."""
  x = np.random.default_rng(3).standard_normal((2, 5, 6)).astype(np.float32)
  codec = codecs.dct_blocks(3, side=5)  # blocks of 5 by 3 of 10 by 6
  out = codec.decode(KEY, codec.encode(KEY, x), x)
  wanted = np.zeros((10, 6))
  for i, j in itertools.product((0, 5), (0, 3)):
    block = fft.dctn(x.reshape(10, 6)[i : i + 5, j : j + 3], norm='ortho')
    least = np.sort(np.abs(block).ravel())[-3]
    kept = np.where(np.abs(block) >= least, block, 0)
    wanted[i : i + 5, j : j + 3] = fft.idctn(kept, norm='ortho')
  np.testing.assert_allclose(out.reshape(10, 6), wanted, atol=1e-5)


TWINS = {
  'chunked_top_k': chunked_twin, 'dct_top_k': cosines_twin,
  'dct_blocks': cosines_twin, 'eden': eden_twin,
  'bfloat16': bfloat16_twin, 'int4': scaled_twin, 'int8': scaled_twin,
  'top_k': top_k_twin, 'sign': sign_twin, 'qsgd': qsgd_twin,
  'quantized_top_k': quantized_twin,
}  # fmt: skip


# A chunk is one cosine: the place of the next largest is that of a rounding.
ANY_PLACE = {('cosines', 'flat')}


@pytest.mark.smoke
@codec_cases.law(
  (n for n, f in CODECS.items() if type(f.codec).__name__ in TWINS),
  fast=codec_cases.FAST,
)
def test_numpy_twins(name):
  payloads, decoded = codec_cases.lanes(name, KEY, list(VECTORS.values()))
  payloads = jax.tree.leaves(payloads)
  for i, (vector, x) in enumerate(VECTORS.items()):
    want, out = TWINS[type(CODECS[name].codec).__name__](name, x)
    if (name, vector) not in ANY_PLACE:
      for got, expected in zip(payloads, want, strict=True):
        np.testing.assert_allclose(got[i], expected, rtol=1e-6)
    np.testing.assert_allclose(decoded[i], out, rtol=1e-5, atol=1e-6)
