"""The rotation of EDEN and the transform of `block_srht`, in NumPy alone."""

from statistics import NormalDist

from fl_sketch.sites.numpy_draws import ENTRY, SIGN, U, counters, seeds, word
import numpy as np

BLOCK, GROUP = 4096, 32 * 4096  # a group has its signs in the bits of a word
_DENSE, _REST_PASSES = 32, 3
_TOP = U(1 << 31)
_PLANES = np.arange(32, dtype=U)[:, None]


def hadamard(n: int) -> np.ndarray:
  """Return the orthonormal Hadamard matrix of a power of two, f32[n, n]."""
  h = np.ones((1, 1), np.float32)
  while len(h) < n:
    h = np.kron([[1, 1], [1, -1]], h)
  return (h / n**0.5).astype(np.float32)


_SIDE = hadamard(64)


def flip(x: np.ndarray, words: np.ndarray):
  """Change the signs of f32[...] in place where the first bit of a word is."""
  x.view(U)[...] ^= words & _TOP


def transform(x: np.ndarray) -> np.ndarray:
  """Return the orthonormal Hadamard transform of each row of f32[rows, m]."""
  m = x.shape[1]
  side = min(m, 64)
  x = x.reshape(-1, m // side, side) @ hadamard(side)
  return (hadamard(m // side) @ x).reshape(-1, m)


def rotate_group(x: np.ndarray, group: int, key: np.ndarray, back: bool):
  """Rotate the whole blocks of a group, f32[<= GROUP], in place, or back."""
  rows = x[: x.size - x.size % BLOCK].reshape(-1, BLOCK)
  squares = rows.reshape(-1, 64, 64)
  own = seeds(key, 8, SIGN)[:2]
  for seed in own[::-1] if back else own:
    words = word(counters(BLOCK, group * BLOCK), seed) << _PLANES[: len(rows)]
    if not back:
      flip(rows, words)
    half = rows.reshape(-1, 64) @ _SIDE
    np.matmul(_SIDE, half.reshape(squares.shape), out=squares)
    if back:
      flip(rows, words)


def rotate_rest(x: np.ndarray, key: np.ndarray, back: bool) -> np.ndarray:
  """Rotate the numbers beyond the last block, fewer than BLOCK, or back."""
  n = x.size
  if n <= _DENSE:
    q = _uniform(key, n)
    return (q.T if back else q) @ x
  m = 1 << n.bit_length() - 1
  starts = [0, n - m][: 1 + (m < n)]
  own = seeds(key, 8, SIGN)[2:].reshape(-1, 2)
  turns = [(i, j) for i in range(_REST_PASSES) for j in range(len(starts))]
  half = -(-n // 2)
  x = x.copy()
  for i, j in turns[::-1] if back else turns:
    part = x[starts[j] : starts[j] + m]
    words = word(counters(m), own[i * len(starts) + j])
    if back and j:
      x[::2], x[1::2] = x[:half].copy(), x[half:].copy()
    if not back:
      flip(part, words)
    part[:] = transform(part[None])[0]
    if back:
      flip(part, words)
    elif j:
      x[:half], x[half:] = x[::2].copy(), x[1::2].copy()
  return x


def normal(words: np.ndarray) -> np.ndarray:
  """Return the quantiles of N(0, 1) at the upper 23 bits of words."""
  quantile = np.vectorize(NormalDist().inv_cdf)
  return quantile(((words >> U(9)) + 0.5) / 2**23)


def _uniform(key, n):
  (seed,) = seeds(key, 1, ENTRY)
  q, r = np.linalg.qr(normal(word(counters(n * n), seed)).reshape(n, n))
  return q * np.sign(np.diag(r))
