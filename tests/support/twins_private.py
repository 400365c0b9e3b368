"""Twins of the private algorithms; the noise is the library's."""

import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.rounds import keys
import jax
import numpy as np
import reference
from reference import unflat
import twins_base as base
from twins_base import desketch, gradient, moved, tables_of, zero_table
import twins_sketched


class Wire(NamedTuple):
  """The private mean of one algorithm: clip rule, trust model and noise."""

  hp: Any
  release: Any
  noise_key: jax.Array

  def noise(self, key, like):
    """All of the noise on a sum, or one client's share of it."""
    trust, release = self.release.trust, self.release
    clients = release.max_cohort or int(4 * release.expected_cohort) + 64
    shares, honest = (1, 1) if trust == 'central' else (clients, 1)
    if trust == 'secure_aggregation':
      honest = release.min_honest or release.expected_cohort
    return _noise(key, like, self.hp, clients, shares=shares, honest=honest)

  def server_noise(self, this, like, index):
    """The noise of the server on the sum of a round."""
    if getattr(self.release, 'correlation', None) is None:
      key = self.server_key(this)
      return self.noise(
        key if index is None else jax.random.fold_in(key, index), like
      )
    return self._correlated(this, like)

  def _correlated(self, this, like):
    """The same in Python's integers, of draws since the epoch began."""
    release, noise = self.release, self.release.correlation
    size = sum(x.size for x in jax.tree.leaves(like))
    extra = {'rounding': noise.rounding(size), 'gain': noise.gain}
    clients = release.max_cohort or int(4 * release.expected_cohort) + 64
    total, age = None, this.index % noise.rounds
    for j, weight in enumerate(noise.weights[: age + 1]):
      key = keys.noise_keys(self.noise_key, np.int32(this.index - j)).server
      draw, _, step = _draw(key, like, self.hp, clients, **extra)
      part = jax.tree.map(lambda x, q=weight: _whole(x) * q, draw)
      total = part if total is None else _plus(total, part)
    nearest = lambda x: np.float64((x + 2**14) // 2**15) * float(step)
    return jax.tree.map(nearest, total)

  def server_key(self, this):
    return keys.noise_keys(self.noise_key, np.int32(this.index)).server

  def client_key(self, this, client):
    secret = keys.noise_keys(self.noise_key, np.int32(this.index))
    return keys.for_client(secret, np.int32(client.id)).client

  def clipped(self, tree):
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
      total = _plus(total, self.clipped(x))
      if trust != 'central':
        key = jax.random.fold_in(self.client_key(this, client), index)
        total = _plus(total, self.noise(key, zero))
    if trust == 'central':
      total = _plus(total, self.server_noise(this, zero, index))
    return jax.tree.map(lambda x: x / expected, total)

  def sketched(self, op, key, this, sent, theta, codec=None):
    """Tables bounded, added up and noisy; or the same before the sketch."""
    if not getattr(self.release, 'before_sketch', False):
      tables = tables_of(op, key, this, sent, codec)
      return self.mean(this, tables, zero_table(op, theta), index=None)
    return base.sketch(op, key, self.vectors(this, sent, theta))

  def vectors(self, this, sent, theta, index=None):
    """The private mean of models, leaf by leaf as they travel."""
    sent, zero = [unflat(x) for x in sent], unflat(0 * theta)
    return reference.flat(self.mean(this, sent, zero, index))


def _plus(a, b):
  return jax.tree.map(np.add, a, b)


def _whole(x):
  """Two's complement as Python's integers."""
  return np.asarray(x).astype(np.int32).astype(object)


@functools.partial(jax.jit, static_argnums=3)
def _drawn(key, like, numbers, options):
  grid = grid_lib.make(**numbers, **dict(options))
  draw = grid_lib.noise(key, grid_lib.encode(like, grid), grid)
  return draw, grid_lib.decode(draw, grid), grid.step


def _draw(key, like, hp, clients, **options):
  """A draw in integers and as noise, and the step of its grid."""
  names = 'clip_norm', 'noise_multiplier'
  numbers = {name: np.float32(getattr(hp, name)) for name in names}
  options = ('clients', clients), *options.items()
  return jax.device_get(_drawn(key, like, numbers, options))


def _noise(key, like, hp, clients, **shares):
  return jax.tree.map(np.float64, _draw(key, like, hp, clients, **shares)[1])


def dp_fedavg(hp, theta, rounds, *, privacy, noise_key):
  for this in rounds:
    wire = Wire(hp, privacy, noise_key)
    sent = [moved(hp, theta, client) / hp.client_lr for client in this.clients]
    if privacy.bound == 'quantile':
      mean, clip_norm = _quantile(wire, this, sent, theta)
      hp = hp._replace(clip_norm=clip_norm)
    else:
      one_draw = privacy.trust == 'central'
      mean = wire.vectors(this, sent, theta, None if one_draw else 0)
    theta = theta - hp.client_lr * hp.step(mean)
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
  half = wire.hp._replace(clip_norm=0.5, noise_multiplier=2 * sigma)
  count += float(wire._replace(hp=half).noise(key, np.zeros(())))
  share = 0.5 + count / release.expected_cohort
  return mean, bound * np.exp(-release.quantile_lr * (share - release.quantile))


def dp_normfedavg(hp, theta, rounds, *, privacy, **options):
  privacy = dataclasses.replace(privacy, bound='normalize')
  return dp_fedavg(hp, theta, rounds, privacy=privacy, **options)


def private_iterative_sketching(
  hp, theta, rounds, *, sketch, local_steps, noise_key
):
  """Noise in every step; the batches are those of `cases.private_steps`."""
  for this in rounds:
    total = zero_table(sketch, theta)
    for client in this.clients:
      secret = Wire(hp, None, noise_key).client_key(this, client)
      key = jax.random.fold_in(secret, base.LOCAL)
      sent = _private_steps(hp, theta, client, local_steps, key)
      total = _plus(total, base.sketch(sketch, this.keys.round, sent))
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
    noise_key, most = jax.random.fold_in(key, k), len(x)
    xi = reference.flat(_noise(noise_key, unflat(0 * u), hp, most))
    u -= hp.client_lr * (total + xi) / batch
  return theta - u


def _private(twin):
  """The twin of the same algorithm without privacy, over a private wire."""

  def play(hp, theta, rounds, *, privacy, noise_key, **options):
    wire = Wire(hp, privacy, noise_key)
    return twin(hp, theta, rounds, wire=wire, **options)

  return play


TWINS = {
  'dp_fedavg': dp_fedavg,
  'dp_normfedavg': dp_normfedavg,
  'private_iterative_sketching': private_iterative_sketching,
} | {
  name: _private(getattr(twins_sketched, name))
  for name in (
    'fedsketch_heaprix', 'fedsketch_privix', 'fedsketchgate', 'fetchsgd',
    'iterative_sketching', 'safl', 'sketched_sgd',
  )
}  # fmt: skip
