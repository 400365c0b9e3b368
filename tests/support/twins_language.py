"""Twins of what the training of language models is compared to."""

import functools

from fl_sketch import sketches
from fl_sketch.sites import numpy_draws, numpy_rotation
from fl_sketch.sites.numpy_draws import ENTRY, SAMPLE, word
import jax
import numpy as np
from twins_base import PLAIN, desketch, moved

layer_cyclic = functools.cache(sketches.layer_cyclic)  # compiled once


def seeds(n, domain, key):
  return numpy_draws.seeds(np.asarray(jax.random.key_data(key)), n, domain)


def normal(seed):
  """The direction z of a seed: that of b before that of w."""
  count = functools.partial(np.arange, dtype=np.uint32)
  own = word(count(4), seed).reshape(2, 2)
  words = [word(count(n), pair) for n, pair in zip((2, 8), own, strict=True)]
  return numpy_rotation.normal(np.concatenate(words))


def loss(theta, x, y):
  return np.square(x @ theta[2:].reshape(4, 2) + theta[:2] - y).mean()


def slopes(hp, theta, client, directions, mu):
  """Of each step those along its directions f64[steps, P, d]."""
  found, local = [], theta.copy()
  for (x, y), of_step in zip(client.batches, directions, strict=True):
    at = lambda h, z, x=x, y=y, local=local: loss(local + h * z, x, y)
    rise = np.array([at(mu, z) - at(-mu, z) for z in of_step]) / (2 * mu)
    local = local - hp.client_lr * rise @ of_step / len(rise)
    found.append(rise)
  return np.array(found)


def decomfl(hp, theta, rounds, *, local_steps, directions=10, mu=1e-3):
  for this in rounds:
    drawn = seeds(local_steps * directions, ENTRY, this.keys.round)
    z = np.reshape(list(map(normal, drawn)), (local_steps, directions, -1))
    sent = [slopes(hp, theta, client, z, mu) for client in this.clients]
    mean = this.mean(sent, np.zeros((local_steps, directions)))
    change = hp.client_lr * np.einsum('kp,kpd->d', mean, z) / directions
    theta = theta - hp.step(change)
  return theta


def fedkseed(hp, theta, rounds, *, local_steps, pool=4096, mu=5e-4):
  for this in rounds:
    z = np.array(list(map(normal, seeds(pool, ENTRY, this.keys.run))))
    sent = []
    for client in this.clients:
      words = seeds(local_steps, SAMPLE, client.local_key)
      own, sums = [first % pool for first, _ in words], np.zeros(pool)
      found = slopes(hp, theta, client, z[own][:, None], mu)
      np.add.at(sums, own, found[:, 0])
      sent.append(sums)
    mean = this.mean(sent, np.zeros(pool))
    theta = theta - hp.step(hp.client_lr * mean @ z)
  return theta


def ferret(hp, theta, rounds, *, size, keep=0.7):
  """Two layers: the bias of 2 and the matrix of 8."""
  dims = np.array([2.0, 8.0])
  squares = dims
  for this in rounds:
    sizes = shares(np.sqrt(squares * dims), dims - 1, size - 2) + 1
    op = layer_cyclic(size, tuple(sizes))
    sent = [moved(hp, theta, client) for client in this.clients]
    table = PLAIN.sketched(op, this.keys.round, this, sent, theta)
    estimate = desketch(op, this.keys.round, table, theta)
    parts = np.split(np.square(table), [sizes[0]])
    news = np.array([part.sum() for part in parts])
    squares = keep * squares + (1 - keep) * news if this.index else news
    theta = theta - hp.step(estimate)
  return theta


def shares(weights, room, rest):
  """Integers in proportion to weights, none above its room, of sum `rest`."""
  low, high = 0.0, 1e12
  for _ in range(200):
    middle = (low + high) / 2
    enough = np.minimum(middle * weights, room).sum() >= rest
    low, high = (low, middle) if enough else (middle, high)
  ends = np.round(np.cumsum(np.minimum(high * weights, room))).astype(int)
  return np.diff(ends, prepend=0)
