"""A client in NumPy alone: docs/reference/wire_format.md as code.

`Client` takes part in rounds of sketched tables. Random draws and codecs are
those of the library, in `fl_sketch.sites.numpy_draws` and `numpy_codecs`, which
load no JAX; `numpy_operators` has the sketches and codecs that are left.
"""

# ruff: noqa: D103, the page explains every function

import json
import struct
import zlib

from fl_sketch.sites.numpy_draws import (
  BUCKET,
  SHIFT,
  SIGN,
  U,
  counters,
  fold_in,
  sample,
  seed_key,
  seeds,
  word,
)
import numpy as np

PRIME = 2**31 - 1
ROUND, CLIENT, CODEC = 1, 2, 0x10CA2
HELLO, WORK, GO_ON, EVALUATE = range(4)  # kinds of requests
PAYLOAD, NEED, REFUSED, JSON = range(4)  # kinds of replies
REQUEST = struct.Struct('<4sHH16sIiiI16sfiiI')
REPLY, PART = struct.Struct('<4sHH16sIiiIIQ'), struct.Struct('<HHiQ')
counter = lambda x: counters(len(x))
signs = lambda words, plane: 1 - 2 * (words.astype(int) >> 31 - plane & 1)


def kwise(key, n, k, domain, counter):
  for family in seeds(key, n * (k + 1), domain).reshape(n, k + 1, 2):
    value = word(counter, family[-1]).astype(int)
    power = 1
    for c in family[:-1, 0][::-1].astype(int) % PRIME:
      value = (value + c * power) % PRIME
      power = power * counter.astype(int) % PRIME
    yield value


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


WIRE = {'float64': '<f4', 'complex128': '<c8', 'int64': '<i4'}


class Client:
  """A client of a run whose payloads are tables, as they are or in a codec.

  `work` is (parameters f32[d], round) -> (update [d], loss): what came minus
  what was trained, numbers in the order of the leaves. `sketch` and `codec` are
  (key, vector) -> arrays; `about` answers a greeting.
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
    if kind != WORK or number < 0:
      return reply(REFUSED, text=b'It sends one payload a round, from 0.')
    try:
      state = self.state_of(body, parts)
    except (struct.error, ValueError):
      return reply(REFUSED, text=b'The parts of the request are malformed.')
    if state is None:
      return reply(NEED, number=-1)
    return reply(PAYLOAD, self.worked(number, state))

  def state_of(self, body, parts):
    """Return the parameters among the parts of a request, or None."""
    for _ in range(parts):
      what, _, _, size = PART.unpack_from(body)
      part, body = body[PART.size :][:size], body[PART.size + size :]
      if what == 0:
        return np.frombuffer(part, '<f4', self.d)
    return None

  def worked(self, number, params):
    """Return the leaves of the payload: metrics, then what the round sends."""
    update, loss = self.work(params, number)
    of_round = lambda tag: fold_in(fold_in(self.root, tag), number)
    sent = [self.sketch(of_round(ROUND), np.float64(update))]
    if self.codec:
      own = fold_in(fold_in(of_round(CLIENT), self.id), CODEC)
      sent = self.codec(own, np.float32(sent[0].ravel()))
    return 1.0, loss, *sent
