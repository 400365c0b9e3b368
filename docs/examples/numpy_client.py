"""A client in NumPy alone: docs/reference/wire_format.md as code.

`Client` takes part in rounds of sketched tables. `numpy_operators` has the
sketches and codecs that are not here.
"""

# ruff: noqa: D103, the page explains every function

import json
import struct
import zlib

import numpy as np

U, PRIME = np.uint32, 2**31 - 1
SHIFT, SIGN, BUCKET, SAMPLE, ROUNDING = 1, 2, 3, 4, 6
ROUND, CLIENT, CODEC = 1, 2, 0x10CA2
HELLO, WORK, GO_ON, EVALUATE = range(4)  # kinds of requests
PAYLOAD, NEED, REFUSED, JSON = range(4)  # kinds of replies
REQUEST = struct.Struct('<4sHH16sIiiI16sfiiI')
REPLY, PART = struct.Struct('<4sHH16sIiiIIQ'), struct.Struct('<HHiQ')
CENTROIDS = [
  [0.797884561],
  [0.452780035, 1.510417608],
  [0.245094179, 0.756005281, 1.343909279, 2.151945705],
  [0.12839503, 0.388048299, 0.656759119, 0.942340456,
   1.256231197, 1.618046386, 2.069017227, 2.73258957],
]  # fmt: skip


def threefry(key, a, b):
  words = (*key, key[0] ^ key[1] ^ U(0x1BD11BDA))
  a, b = np.array(a, U, ndmin=1) + words[0], np.array(b, U, ndmin=1) + words[1]
  for i in range(5):
    for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
      a = a + b
      b = a ^ (b << U(r) | b >> U(32 - r))
    a, b = a + words[(i + 1) % 3], b + words[(i + 2) % 3] + U(i + 1)
  return np.array([a, b])


seed_key = lambda seed: np.array([0, seed & 0xFFFFFFFF], U)
fold_in = lambda key, n: threefry(key, 0, n)[:, 0]


def mix(x):
  x = (x ^ x >> U(16)) * U(0x85EBCA6B)
  x = (x ^ x >> U(13)) * U(0xC2B2AE35)
  return x ^ x >> U(16)


word = lambda counter, seed: mix(mix(counter ^ seed[0]) + seed[1])
signs = lambda words, plane: 1 - 2 * (words.astype(int) >> 31 - plane & 1)
counter = lambda x: np.arange(len(x), dtype=U)


def seeds(key, n, domain):
  pair = np.array([[domain], [domain ^ 0xFFFFFFFF]], U)
  pair = mix(mix(pair ^ key[:, None]) ^ key[::-1, None])
  return word(np.arange(2 * n, dtype=U), pair).reshape(n, 2)


def kwise(key, n, k, domain, counter):
  for family in seeds(key, n * (k + 1), domain).reshape(n, k + 1, 2):
    value = word(counter, family[-1]).astype(int)
    power = 1
    for c in family[:-1, 0][::-1].astype(int) % PRIME:
      value = (value + c * power) % PRIME
      power = power * counter.astype(int) % PRIME
    yield value


def sample(key, size, d):
  low = (d - 1).bit_length() // 2
  masks = U((1 << low) - 1), U((1 << (d - 1).bit_length() - low) - 1)
  first, *rounds = seeds(key, 1 + 2 * max(3, 1 - (-16 // max(low, 1))), SAMPLE)

  def permute(x):
    left, right = (x ^ first[0]) & masks[0], (x >> U(low) ^ first[1]) & masks[1]
    for one, two in zip(rounds[::2], rounds[1::2], strict=True):
      left = left ^ word(right, one) & masks[0]
      right = right ^ word(left, two) & masks[1]
    return right << U(low) | left

  x = permute(np.arange(size, dtype=U))
  while (x >= d).any():
    x = np.where(x >= d, permute(x), x)
  return x.astype(int)


def hadamard(x):
  shape, n = x.shape, 1
  while n < len(x):
    a, b = np.moveaxis(x.reshape(shape[0] // (2 * n), 2, n, -1), 1, 0)
    x, n = np.stack([a + b, a - b], 1).reshape(shape), 2 * n
  return x


def hashed(key, x, n):
  seed = seeds(key, -(-n // 32), SIGN)
  words = [word(counter(x), seed[j // 32]) for j in range(n)]
  signed = [x * signs(w, j % 32) for j, w in enumerate(words)]
  return [*kwise(key, n, 2, BUCKET, counter(x))], np.array(signed)


def count_sketch(key, x, rows, cols, **_):
  words, signed = hashed(key, x, rows)
  pairs = zip(words, signed, strict=True)
  return np.array([np.bincount(w % cols, s, cols) for w, s in pairs])


def block_cyclic(key, x, size, sparsity=1):
  cols, seed, tables = size // sparsity, seeds(key, sparsity, SIGN), []
  block, u = np.divmod(counter(x), U(cols))
  for j, shift in enumerate(kwise(key, sparsity, 2, SHIFT, block)):
    signed = x * signs(word(block // U(32) * U(cols) + u, seed[j]), block % 32)
    tables.append(np.bincount((u + shift % cols) % cols, signed, cols))
  return np.concatenate(tables) / sparsity**0.5


def signed(key, x, n):
  x = x * signs(word(counter(x), seeds(key, 1, SIGN)[0]), 0)
  return np.append(x, np.zeros(n - len(x)))


def srht(key, x, size):
  n = 1 << (len(x) - 1).bit_length()
  return hadamard(signed(key, x, n))[sample(key, size, n)] / size**0.5


def block_srht(key, x, size, block=4096):
  d, m = len(x), min(block, 1 << len(x).bit_length() - 1)
  columns, beyond = divmod(d, m)
  rest, chance = divmod(beyond * size, d)
  flip, ends = (signs(word(counter(x), s), 0) for s in seeds(key, 2, SIGN))
  if beyond:
    end = hadamard(x[-m:] * ends[-m:]) / m**0.5 * ends[-m:]
    x = np.append(x[:-m], end)
  x = x * flip
  grid = hadamard(x[: d - beyond].reshape(m, columns)) / m**0.5
  grid = grid[sample(key, -(-(size - rest) // columns), m)]
  turn, coin = seeds(key, 1, SHIFT)[0].astype(int)
  grid[-1] = np.roll(grid[-1], -(turn % columns))
  kept = grid.ravel()[: size - rest]
  if beyond:
    at = sample(fold_in(key, 1), rest + (chance > 0), beyond)
    others = x[d - beyond :][at]
    if coin % d < chance:
      kept[-1] = others[-1]
    kept = np.append(kept, others[:rest])
  return (d / size) ** 0.5 * kept


def uniform(key, x):
  return (word(counter(x), *seeds(key, 1, ROUNDING)) >> U(8)) / 2**24


fraction = lambda x, scale: x / np.where(scale > 0, scale, 1)


def top_k(key, x, k):
  at = np.argsort(-np.abs(x), -1, kind='stable')[..., :k]
  return np.take_along_axis(x, at, -1), at


def sign(key, x, norm='l1'):
  scale = abs(x).mean() if norm == 'l1' else np.square(x).mean() ** 0.5
  return np.packbits(x < 0), scale


def bfloat16(key, x):
  x = np.clip(x, -3.3895314e38, 3.3895314e38).astype('f4').view(U)
  upper = x + (word(counter(x), *seeds(key, 1, ROUNDING)) >> U(16)) >> U(16)
  return [upper.astype('<u2').view([('bfloat16', '<u2')])]


def rounded(key, x, bound, block):
  block = min(block, len(x))
  rows = np.append(abs(x), np.zeros(-len(x) % block)).reshape(-1, block)
  scale = rows.max(1)
  steps = (fraction(rows, scale[:, None]) * bound).ravel()[: len(x)]
  level = np.floor(steps) + (uniform(key, x) < steps % 1)
  level = np.copysign(level, x).astype('i1')
  if bound > 7:
    return level, scale
  codes = np.append(level + bound, np.zeros(len(x) % 2, 'i1')).astype('u1')
  return codes[::2] | codes[1::2] << 4, scale


def eden(key, x, bits=1, rotate=False, scale='unbiased'):
  size, c = np.square(x).mean() ** 0.5, np.array(CENTROIDS[bits - 1])
  u = fraction(x, size)
  index = (abs(u) > (c[1:] + c[:-1])[:, None] / 2).sum(0)
  q = np.where(u < 0, -c[index], c[index])
  factor = len(x) / (u @ q or 1)
  if scale == 'least_squares':
    factor = u @ q / (q @ q)
  planes = [u < 0, *(index >> i & 1 for i in reversed(range(bits - 1)))]
  return np.packbits(np.array(planes, bool), axis=1), size * factor


int8 = lambda key, x, block=256: rounded(key, x, 127, block)
int4 = lambda key, x, block=64: rounded(key, x, 7, block)
WIRE = {'float64': '<f4', 'complex128': '<c8', 'int64': '<i4'}


class Client:
  """A client of a run whose payloads are tables, as they are or in a codec.

  `work` is (parameters f32[d], round) -> (update [d], loss): what came minus
  what was trained, numbers in the order of the leaves. `sketch` and `codec` are
  functions of this module with their options; `about` answers a greeting.
  """

  def __init__(self, about, seed, d, work, sketch, codec=None):
    """Keep what the server does not send; a client's number is in `about`."""
    self.id, self.root, self.d = about['client'], seed_key(seed), d
    self.work, self.sketch, self.codec = work, sketch, codec
    self.about = about | {'round': -1}  # without a replica

  def handle(self, message):
    """Answer a request."""
    message = message.ljust(REQUEST.size + 4, b'\0')  # then its checksum fails
    magic, version, kind, *fields = REQUEST.unpack_from(message)
    run, incarnation, number, _, stage, *_, parts = fields

    def reply(kind, leaves=(), text=b'', number=number):
      leaves = [np.asarray(x) for x in leaves]
      leaves = [x.astype(WIRE.get(x.dtype.name, x.dtype)) for x in leaves]
      name = lambda x: x.dtype.names[0] if x.dtype.names else x.dtype.name
      layout = ' '.join(f'{name(x)}{list(x.shape)}' for x in leaves)
      body = text + b''.join(x.tobytes() for x in leaves)
      sender = run, incarnation, number, self.id, stage
      fields = *sender, zlib.crc32(layout.encode()), len(body)
      head = REPLY.pack(b'FLSK', 3, kind, *fields)
      return head + struct.pack('<I', zlib.crc32(head + body)) + body

    head, body = message[: REQUEST.size], message[REQUEST.size + 4 :]
    (crc,) = struct.unpack_from('<I', message, REQUEST.size)
    if (magic, version, crc) != (b'FLSQ', 3, zlib.crc32(head + body)):
      return reply(REFUSED, text=b'The request is damaged or not of version 3.')
    if kind in (HELLO, EVALUATE):  # it does not evaluate
      about = {} if kind == EVALUATE else self.about
      return reply(JSON, text=json.dumps(about).encode())
    if kind != WORK:
      return reply(REFUSED, text=b'This client sends one payload a round.')
    for _ in range(parts):
      what, _, _, size = PART.unpack_from(body)
      part, body = body[PART.size :][:size], body[PART.size + size :]
      if what == 0:
        return reply(PAYLOAD, self.worked(number, part))
    return reply(NEED, number=-1)

  def worked(self, number, state):
    """Return the leaves of the payload: metrics, then what the round sends."""
    params = np.frombuffer(state, '<f4', self.d)
    update, loss = self.work(params, number)
    of_round = lambda tag: fold_in(fold_in(self.root, tag), number)
    sent = [self.sketch(of_round(ROUND), np.float64(update))]
    if self.codec:
      own = fold_in(fold_in(of_round(CLIENT), self.id), CODEC)
      sent = self.codec(own, sent[0].ravel())
    return 1.0, loss, *sent
