"""ChaCha20 (RFC 8439): its block function over arrays, and draws on the host.

The block function takes arrays of NumPy or of JAX, many blocks at once.
"""

import math
from typing import Any

import numpy as np

KEY_BYTES = 32
DOUBLE_ROUNDS = 10
_CONSTANTS = np.frombuffer(b'expand 32-byte k', '<u4').astype(np.uint32)
_AT_ONCE = 2**18  # 64-bit words that `Generator.binomial` holds
_LEAST = 64  # blocks at once, which take hardly longer than one

Rows = tuple[Any, Any, Any, Any]  # of the 4 x 4 state, uint32[4, blocks] each


def first_state(key: Any, counter: Any, nonce: Any, xp: Any = np) -> Rows:
  """Return the first state of key [8], counter [blocks], nonce [3], uint32."""
  blocks = counter.shape[0]
  fill = lambda words: xp.broadcast_to(words[:, None], (len(words), blocks))
  last = xp.concatenate([counter[None], fill(nonce)])
  return fill(xp.asarray(_CONSTANTS)), fill(key[:4]), fill(key[4:]), last


def double_round(rows: Rows, xp: Any = np) -> Rows:
  """Mix the columns, then the diagonals; RFC 8439, section 2.3.1."""
  turn = lambda x, by: xp.roll(x, -by, axis=0)
  a, b, c, d = _quarter_rounds(*rows)
  a, b, c, d = _quarter_rounds(a, turn(b, 1), turn(c, 2), turn(d, 3))
  return a, turn(b, 3), turn(c, 2), turn(d, 1)


def _quarter_rounds(a, b, c, d):
  """Return the quarter round of each of four columns; RFC 8439, section 2.1."""
  rotate = lambda x, by: (x << np.uint32(by)) | (x >> np.uint32(32 - by))
  for of_d, of_b in ((16, 12), (8, 7)):
    a = a + b
    d = rotate(d ^ a, of_d)
    c = c + d
    b = rotate(b ^ c, of_b)
  return a, b, c, d


def words_of(key: bytes) -> np.ndarray:
  """Return the words of a key of 32 bytes, uint32[8]; ValueError of others."""
  if len(key) != KEY_BYTES:
    raise ValueError(f'{len(key)=} must be {KEY_BYTES}.')
  return np.frombuffer(key, '<u4').astype(np.uint32)


def key_stream(key: bytes, nonce: bytes, first: int, blocks: int) -> bytes:
  """Return consecutive blocks of the key stream, 64 bytes each.

  The key has 32 bytes, the nonce 12; `first` is the counter of the first block.

  >>> key_stream(bytes(32), bytes(12), first=0, blocks=1)[:4].hex()
  '76b8e0ad'
  """
  if len(nonce) != 12:
    raise ValueError(f'{len(nonce)=} must be 12.')
  if not 0 <= first <= first + blocks <= 2**32:
    raise ValueError(f'{first=} and {blocks=} must be within 2**32 blocks.')
  counter = np.arange(first, first + blocks, dtype=np.uint64)
  words = np.frombuffer(nonce, '<u4').astype(np.uint32)
  start = first_state(words_of(key), counter.astype(np.uint32), words)
  rows = start
  for _ in range(DOUBLE_ROUNDS):
    rows = double_round(rows)
  state = np.concatenate([x + y for x, y in zip(rows, start, strict=True)])
  return state.T.astype('<u4').tobytes()


class Generator:
  """Draws from a ChaCha20 key stream by the methods of `np.random.Generator`.

  Their laws are exact, up to 2^-64 in a probability. Each use of a key needs
  another nonce.
  """

  def __init__(self, key: bytes, nonce: bytes):
    self._key, self._nonce, self._blocks = key, nonce, 0
    self._unused = np.empty(0, np.uint64)

  bit_generator = property(lambda self: self)  # which has `random_raw`

  def random_raw(self, size: int | tuple[int, ...]) -> np.ndarray:
    """Draw the next words of the key stream, uint64[size]."""
    count = math.prod(np.atleast_1d(size).tolist())
    if (missing := count - len(self._unused)) > 0:
      blocks = max(-(-missing // 8), _LEAST)
      stream = key_stream(self._key, self._nonce, self._blocks, blocks)
      self._blocks += blocks
      more = np.frombuffer(stream, '<u8').astype(np.uint64)
      self._unused = np.concatenate([self._unused, more])
    words, self._unused = self._unused[:count], self._unused[count:]
    return words.reshape(size)

  def integers(self, high: int, *, size: int) -> np.ndarray:
    """Draw uniform integers, int64[size] in [0, high), without any bias."""
    if not 1 <= high <= 2**63:
      raise ValueError(f'{high=} must be in [1, 2**63].')
    least, accepted = np.uint64(2**64 % high), np.empty(0, np.uint64)
    while len(accepted) < size:  # words below 2^64 mod high would be biased
      words = self.random_raw(size - len(accepted))
      accepted = np.concatenate([accepted, words[words >= least]])
    return (accepted % np.uint64(high)).astype(np.int64)

  def binomial(self, n: int, p: float) -> int:
    """Count the heads of n coins, each of probability p rounded to 2^-64."""
    if not 0 <= p <= 1:
      raise ValueError(f'{p=} must be in [0, 1].')
    heads = int(p * 2.0**64)  # of 2^64 words; the product is exact
    if heads == 0:
      return 0
    count = 0
    for first in range(0, n, _AT_ONCE):
      coins = self.random_raw(min(_AT_ONCE, n - first))
      count += int((coins <= np.uint64(heads - 1)).sum())
    return count

  def permutation(self, n: int) -> np.ndarray:
    """Draw one of the orders of range(n), int64[n], all equally likely."""
    while True:  # two equal words, whose order would be fixed, are rare
      order = np.argsort(words := self.random_raw(n))
      if np.all(np.diff(words[order]) > 0):
        return order

  def choice(
    self, a: int | np.ndarray, size: int, *, replace=False, shuffle=False
  ) -> np.ndarray:
    """Draw a subset of range(a), or of an array, all of `size` equally likely.

    Its order is not part of the law, whether `shuffle` is set or not.
    """
    del shuffle
    if replace:
      raise ValueError(f'{replace=} is not supported; use False.')
    if isinstance(a, np.ndarray):
      return a[self.choice(len(a), size)]
    if not 0 <= size <= a:
      raise ValueError(f'{size=} must be in [0, {a}].')
    if 2 * size > a:
      return np.delete(np.arange(a), self.choice(a, a - size))
    drawn = np.empty(0, np.int64)
    while len(drawn) < size:  # each is uniform over those not yet drawn
      drawn = np.concatenate([drawn, self.integers(a, size=size - len(drawn))])
      drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return drawn
