"""Twins of the private algorithms.

Only the Gaussian draws are the library's, under the keys that it documents. A
weight above 0 counts as 1.
"""

import functools
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.privacy import mechanisms
from fl_sketch.rounds import keys
import jax
import numpy as np
import reference
from twins_base import (
  desketch,
  gradient,
  largest,
  mean_gradient,
  moved,
  sketch as table_of,
  support as heavy,
  zero_table,
)
import twins_sketched
from twins_sketched import heaprix_literal

LOCAL = 0x10CA1  # folded into a client's key for its local work


class Wire(NamedTuple):
  """The private mean of one algorithm: clip rule, trust model and noise."""

  hp: Any
  release: Any
  noise_key: jax.Array

  def stddev(self):
    """Of all the noise on a sum."""
    return self.hp.noise_multiplier * self.hp.clip_norm

  def server_key(self, this):
    return keys.noise_keys(self.noise_key, np.int32(this.index)).server

  def client_key(self, this, client):
    secret = keys.noise_keys(self.noise_key, np.int32(this.index))
    return keys.for_client(secret, np.int32(client.id)).client

  def bounded(self, tree):
    """A contribution of norm at most C; leaves are arrays."""
    leaves, structure = jax.tree.flatten(tree)
    if self.release.per_leaf:
      each = self.hp.clip_norm / np.sqrt(len(leaves))
      leaves = [self._scaled([x], each)[0] for x in leaves]
    else:
      leaves = self._scaled(leaves, self.hp.clip_norm)
    return jax.tree.unflatten(structure, leaves)

  def _scaled(self, leaves, bound):
    norm = np.sqrt(sum((x**2).sum() for x in leaves))
    factor = bound / norm if norm else 0.0
    if self.release.bound != 'normalize':
      factor = min(1.0, factor)
    return [x * factor for x in leaves]

  def mean(self, this, sent, zero, index=0):
    """The sum of what is sent, bounded and noisy, over the expected cohort."""
    total = zero
    expected, trust = self.release.expected_cohort, self.release.trust
    for client, x in zip(this.clients, sent, strict=True):
      total = _plus(total, self.bounded(x))
      if trust != 'central':
        share = self.release.min_honest or expected
        key = jax.random.fold_in(self.client_key(this, client), index)
        stddev = self.stddev() / (1 if trust == 'local' else np.sqrt(share))
        total = _plus(total, _noise(key, zero, stddev))
    if trust == 'central':
      key = self.server_key(this)
      if index is not None:
        key = jax.random.fold_in(key, index)
      total = _plus(total, _noise(key, zero, self.stddev()))
    return jax.tree.map(lambda x: x / expected, total)

  def sketched(self, op, key, this, sent, theta):
    """Tables bounded, added up and noisy; or the same before the sketch."""
    if not self.release.before_sketch:
      tables = [table_of(op, key, x) for x in sent]
      return self.mean(this, tables, zero_table(op, theta), index=None)
    return table_of(op, key, self.vectors(this, sent, theta))

  def vectors(self, this, sent, theta, index=None):
    """The private mean of models, leaf by leaf as they travel."""
    sent, zero = [_leaves(x) for x in sent], _leaves(0 * theta)
    return _flat(self.mean(this, sent, zero, index))


def _plus(a, b):
  return jax.tree.map(np.add, a, b)


def _leaves(x):
  return {'b': x[:2], 'w': x[2:].reshape(4, 2)}


def _flat(tree):
  return np.concatenate([tree['b'], tree['w'].ravel()])


def _noise(key, like, stddev):
  like = jax.tree.map(np.float32, like)
  draw = mechanisms.gaussian_noise(key, like, 1.0)
  return jax.tree.map(lambda x: stddev * np.float64(x), draw)


def dp_fedavg(hp, theta, rounds, *, privacy, noise_key, server_optimizer='sgd'):
  server = reference.Server(server_optimizer, theta.size)
  for this in rounds:
    wire = Wire(hp, privacy, noise_key)
    sent = [moved(hp, theta, client) / hp.client_lr for client in this.clients]
    if privacy.bound == 'quantile':
      mean, clip_norm = _quantile(wire, this, sent, theta)
      hp = hp._replace(clip_norm=clip_norm)
    else:
      one_draw = privacy.trust == 'central'
      mean = wire.vectors(this, sent, theta, None if one_draw else 0)
    theta = theta - hp.client_lr * server.step(mean, hp.server_lr)
  return theta


def _quantile(wire, this, sent, theta):
  """Andrew et al., Algorithm 1: (the mean, the next bound)."""
  release, bound = wire.release, wire.hp.clip_norm
  z, sigma = wire.hp.noise_multiplier, release.count_stddev
  more = (z**-2 - (2 * sigma) ** -2) ** -0.5
  noisy = wire._replace(hp=wire.hp._replace(noise_multiplier=more))
  mean = noisy.vectors(this, sent, theta, 0)
  count = sum(float(np.linalg.norm(x) <= bound) - 0.5 for x in sent)
  key = jax.random.fold_in(wire.server_key(this), 1)
  count += float(_noise(key, np.zeros(()), sigma))
  share = 0.5 + count / release.expected_cohort
  return mean, bound * np.exp(-release.quantile_lr * (share - release.quantile))


def dp_normfedavg(hp, theta, rounds, *, privacy, **options):
  privacy = privacy._replace(bound='normalize')
  return dp_fedavg(hp, theta, rounds, privacy=privacy, **options)


def private_iterative_sketching(
  hp, theta, rounds, *, sketch, local_steps, noise_key
):
  """Noise in every step; the batches are those of `cases.private_steps`."""
  for this in rounds:
    total = zero_table(sketch, theta)
    for client in this.clients:
      secret = Wire(hp, None, noise_key).client_key(this, client)
      key = jax.random.fold_in(secret, LOCAL)
      sent = _private_steps(hp, theta, client, local_steps, key)
      total = _plus(total, table_of(sketch, this.keys.round, sent))
    step = desketch(sketch, this.keys.round, total, theta)
    theta = theta - hp.server_lr * step / max(len(this.clients), 1)
  return theta


def _private_steps(hp, theta, client, steps, key, least=-1.0, batch=4):
  u = theta.copy()
  for k in range(steps):
    x, y = client.batches[k]
    total = np.zeros_like(theta)
    for one in np.flatnonzero(x[:, 0] > least):
      g = gradient(u, x[one : one + 1], y[one : one + 1])
      total += g * min(1.0, hp.clip_norm / np.linalg.norm(g))
    stddev = hp.noise_multiplier * hp.clip_norm
    xi = _flat(_noise(jax.random.fold_in(key, k), _leaves(0 * u), stddev))
    u -= hp.client_lr * (total + xi) / batch
  return theta - u


def safl(hp, theta, rounds, *, privacy, noise_key, **options):
  mean_of = Wire(hp, privacy, noise_key).sketched
  return twins_sketched.safl(hp, theta, rounds, mean_of=mean_of, **options)


iterative_sketching = functools.partial(safl, server_optimizer='sgd')
fedsketch_privix = functools.partial(safl, server_optimizer='sgd')


def fedsketch_heaprix(
  hp, theta, rounds, *, sketch, k, privacy, noise_key, exact=True
):
  wire = Wire(hp, privacy, noise_key)
  for this in rounds:
    sent = [moved(hp, theta, client) for client in this.clients]
    if exact:
      step, _ = _heaprix(wire, sketch, k, this, sent, theta)
    else:
      mean_of = wire.sketched
      step = heaprix_literal(sketch, k, this, sent, theta, mean_of)
    theta = theta - hp.server_lr * step
  return theta


def _heaprix(wire, op, k, this, sent, theta):
  """Two releases: (the step, the first mean table)."""
  key = this.keys.round
  fresh = jax.random.fold_in(key, 2)
  tables = [table_of(op, key, x) for x in sent]
  zero = zero_table(op, theta)
  first = wire.mean(this, tables, zero)
  top = heavy(op, key, first, theta, k)
  both = [(x[top], table_of(op, fresh, x)) for x in sent]
  values, second = wire.mean(this, both, (np.zeros(k), zero), index=1)
  y1 = np.zeros_like(theta)
  y1[top] = values
  rest = second - table_of(op, fresh, y1)
  return y1 + desketch(op, fresh, rest, theta), first


def fedsketchgate(
  hp, theta, rounds, *, sketch, local_steps, privacy, noise_key, k=None
):
  control = np.zeros((hp.population, theta.size))
  shape = zero_table(sketch, theta).shape
  reader = sketches.count_sketch(*shape, combine='mean')
  alpha = sketches.properties(reader).alpha(theta.size)
  scale = 1 / ((1 + alpha) * hp.client_lr * local_steps)
  wire = Wire(hp, privacy, noise_key)
  for this in rounds:
    key = this.keys.round
    sent = [
      moved(hp, theta, client, -control[client.id], local_steps)
      for client in this.clients
    ]
    tables = [table_of(sketch, key, x) for x in sent]
    if k is None:
      mean = wire.mean(this, tables, zero_table(sketch, theta))
      step = desketch(sketch, key, mean, theta)
    else:
      step, mean = _heaprix(wire, sketch, k, this, sent, theta)
    shared = desketch(reader, key, mean, theta)
    for client, table in zip(this.clients, tables, strict=True):
      estimate = desketch(reader, key, wire.bounded(table), theta)
      control[client.id] -= scale * (shared - estimate)
    theta = theta - hp.server_lr * step
  return theta


def fetchsgd(hp, theta, rounds, *, privacy, noise_key, **options):
  mean_of = Wire(hp, privacy, noise_key).sketched
  return twins_sketched.fetchsgd(hp, theta, rounds, mean_of=mean_of, **options)


def sketched_sgd(hp, theta, rounds, *, sketch, k, privacy, noise_key):
  error = np.zeros((hp.population, theta.size))
  wire = Wire(hp, privacy, noise_key)
  for this in rounds:
    key = this.keys.round
    ids = [client.id for client in this.clients]
    for client in this.clients:
      error[client.id] += hp.server_lr * mean_gradient(theta, client)
    tables = [table_of(sketch, key, error[j]) for j in ids]
    table = wire.mean(this, tables, zero_table(sketch, theta))
    top = largest(desketch(sketch, key, table, theta), 4 * k)
    exact = [error[j][top] for j in ids]
    values = wire.mean(this, exact, np.zeros(4 * k), index=1)
    support = largest(values, k)
    theta = theta.copy()
    theta[top[support]] -= values[support]
    error[np.ix_(ids, top[support])] = 0
  return theta
