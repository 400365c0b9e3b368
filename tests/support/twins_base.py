"""Common parts of the twins: vectors are float64, sketches the library's."""

import functools
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import keys
from fl_sketch.sketches import hashing
import jax
import jax.numpy as jnp
import numpy as np
import reference
from reference import gradient

# Folded into a key.
LOCAL, CODEC, COIN, SUBSET = 0x10CA1, 0x10CA2, 0x10CA4, 0x10CA5
FACTORS = 0x10CAB
EPOCH = 0x10CA9


class Settings(NamedTuple):
  """The numbers of a run, as Python numbers."""

  client_lr: float
  server_lr: float
  clip_norm: float
  noise_multiplier: float
  population: int
  server: Any = None

  def step(self, mean):
    """The server's step, which is subtracted."""
    return self.server.step(mean, self.server_lr)


class Client(NamedTuple):
  """One that is present."""

  id: int
  weight: float
  batches: list[tuple[np.ndarray, np.ndarray]]
  codec_key: jax.Array
  local_key: jax.Array


class Round(NamedTuple):
  """One round, as all its twins see it."""

  index: int
  keys: keys.RoundKeys
  clients: list[Client]

  def mean(self, values, zero):
    """The weighted mean of a value a client; `zero` if nobody is there."""
    total = jax.tree.map(lambda x: 0 * np.asarray(x), zero)
    for client, value in zip(self.clients, values, strict=True):
      add = lambda total, x, weight=client.weight: total + weight * x
      total = jax.tree.map(add, total, value)
    weight = sum(client.weight for client in self.clients)
    return jax.tree.map(lambda x: x / weight, total) if weight else total


def hash_key(this, hash_rounds):
  """The key of a hash that is kept for so many rounds, or 0 for all."""
  if not hash_rounds:
    return this.keys.round if hash_rounds is None else this.keys.run
  epochs = jax.random.fold_in(this.keys.run, EPOCH)
  return jax.random.fold_in(epochs, this.index // hash_rounds)


def rounds_of(cohorts, run_key) -> list[Round]:
  """The rounds of cohorts: those present, with float64 batches."""
  result = []
  for r, cohort in enumerate(cohorts):
    keys_r = keys.round_keys(run_key, jnp.int32(r))
    clients = []
    for lane in np.flatnonzero(cohort.weight):
      client_key = keys.for_client(keys_r, jnp.int32(cohort.ids[lane])).client
      x, y = (np.asarray(b[lane], np.float64) for b in cohort.batches)
      client = Client(
        id=int(cohort.ids[lane]),
        weight=float(cohort.weight[lane]),
        batches=list(zip(x, y, strict=True)),
        codec_key=jax.random.fold_in(client_key, CODEC),
        local_key=jax.random.fold_in(client_key, LOCAL),
      )
      clients.append(client)
    result.append(Round(r, keys_r, clients))
  return result


def mean_gradient(theta, client):
  """Of all a client's batches, at one point."""
  return np.mean([gradient(theta, x, y) for x, y in client.batches], axis=0)


def moved(
  hp, theta, client, correction=0.0, steps=None, proximal=0.0, step=None
):
  """Received minus returned, after steps (gradient, theta) -> theta, or SGD."""
  local = theta.copy()
  count = len(client.batches)
  for k in range(count if steps is None else steps):
    x, y = client.batches[k % count]
    pull = gradient(local, x, y) + correction + proximal * (local - theta)
    local = local - hp.client_lr * pull if not step else step(pull, local)
  return theta - local


class AdamW:
  """AdamW as its paper has it, with the defaults of optax."""

  def __init__(self, rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=1e-4):
    self.rate, self.b1, self.b2 = rate, b1, b2
    self.eps, self.weight_decay = eps, weight_decay
    self.count, self.m, self.v = 0, 0.0, 0.0

  def step(self, grad, theta):
    self.count += 1
    self.m = self.b1 * self.m + (1 - self.b1) * grad
    self.v = self.b2 * self.v + (1 - self.b2) * grad**2
    m = self.m / (1 - self.b1**self.count)
    v = self.v / (1 - self.b2**self.count)
    scaled = m / (np.sqrt(v) + self.eps)
    return theta - self.rate * (scaled + self.weight_decay * theta)


def clip(x, bound):
  norm = np.linalg.norm(x)
  return x * min(1.0, bound / norm) if norm else x


def largest(x, k):
  """Where the k largest |x| are; the lower coordinate first among equals."""
  return np.argsort(-np.abs(x), kind='stable')[:k]


def only(x, support):
  """The vector x on the support, and 0 elsewhere."""
  out = np.zeros_like(x)
  out[support] = x[support]
  return out


@functools.cache
def _jit(fn):
  return jax.jit(fn)


def _tree(x):
  return _narrow(reference.unflat(np.asarray(x, np.float32)))


def _wide(tree) -> Any:
  to = lambda x: np.asarray(x, np.result_type(x.dtype, np.float64))
  return jax.tree.map(to, tree)


def _narrow(tree):
  return jax.tree.map(jnp.asarray, tree)


def _ravel(tree):
  return reference.flat(tree).astype(np.float64)


def sketch(op, key, x):
  """[d] -> a float64 table."""
  return _wide(_jit(op.sketch)(key, _tree(x)))


def desketch(op, key, table, theta):
  """A table -> [d], as long as `theta`."""
  return _ravel(_jit(op.desketch)(key, _narrow(table), _tree(theta)))


def tables_of(op, key, this, sent, codec=None):
  """The tables of vectors, as the server decodes them."""
  tables = [sketch(op, key, x) for x in sent]
  if codec is None:
    return tables
  clients = zip(this.clients, tables, strict=True)
  return [through_table(codec, c.codec_key, x) for c, x in clients]


def zero_table(op, theta):
  return jax.tree.map(lambda x: 0 * x, _wide(op.zero_table(_tree(theta))))


@functools.cache
def _sample(size, d):
  return jax.jit(lambda key: hashing.sample(key, size, d))


def shared_mask(keys_r, size, d):
  """The coordinates of a round that all clients and the server know."""
  key = jax.random.fold_in(keys_r.round, SUBSET)
  return np.asarray(_sample(size, d)(key))


def support(op, key, table, theta, k):
  """The library's HEAVYMIX support of a table."""
  return np.asarray(_support(op, k)(key, _narrow(table), _tree(theta)))


@functools.cache
def _support(op, k):
  return jax.jit(lambda *args: sketches.heavy_support(op, *args, k))


def through(codec, key, x):
  """The vector [d] that the receiver decodes."""
  return _ravel(_decoded(codec, key, _tree(x)))


def through_table(codec, key, table):
  """The table that the receiver decodes of a float64 table."""
  return _wide(_decoded(codec, key, _narrow(table)))


def through_vector(codec, key, x):
  """The vector that the receiver decodes of a bare vector."""
  return _ravel(_decoded(codec, key, jnp.asarray(x, jnp.float32)))


def _decoded(codec, key, tree):
  payload = _jit(codec.encode)(key, tree)
  return _jit(codec.decode)(key, payload, tree)


def server_codec_key(keys_r):
  return jax.random.fold_in(keys_r.round, CODEC)


def told(codec, this, table):
  key = server_codec_key(this.keys)
  return table if codec is None else through_table(codec, key, table)


class Plain:
  """Weighted means of what clients send; `twins_private.Wire` adds noise."""

  def clipped(self, tree):
    """A contribution as it counts in a mean."""
    return tree

  def mean(self, this, sent, zero, index=0):
    """The mean of trees like `zero`; `index` numbers the means of a round."""
    return this.mean(sent, zero)

  def sketched(self, op, key, this, sent, theta, codec=None):
    """The mean of the tables of vectors."""
    tables = tables_of(op, key, this, sent, codec)
    return this.mean(tables, zero_table(op, theta))


PLAIN = Plain()
