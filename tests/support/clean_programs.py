"""Private programs that must be accepted, with the releases that they make."""

import dataclasses
from typing import Any, NamedTuple

import algorithm_list
import any_models
import cases
from fl_sketch import algorithms, rounds
from fl_sketch.privacy.mechanisms import private_mean, sums
from fl_sketch.rounds import chain, comms, transforms as t
import jax
from jax import lax, random
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from release_leaks import (
  MEAN,
  add,
  finish,
  fold,
  noise,
  norms,
  once,
  rows,
  scan,
  total,
)


def joined(x):
  return jnp.concatenate([jnp.sin(x[:2]), jnp.cos(x[2:])])


def by_reference(x):
  def one(row):
    box = jax.new_ref(jnp.zeros(()))
    for number in row:
      box[...] += number
    return row + box[...]

  return jax.vmap(one)(x)


def until_small(row):
  return lax.while_loop(lambda r: r.sum() > 1, lambda r: r / 2, row)


# Each result row is of one client, in place: a contribution and client state.
ROWS = {
  'sorted': lambda x: jnp.sort(x, 1),
  'top': lambda x: lax.top_k(x, 2)[0],
  'normalised': lambda x: x / (1 + norms(x)[:, None]),
  'centred': lambda x: x - x.mean(1, keepdims=True),
  'transformed': lambda x: jnp.fft.fft(x, axis=1).real,
  'while': lambda x: jax.vmap(until_small)(x),
  'cond': lambda x: jax.vmap(
    lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r))(x),
  'entry': lambda x: jax.vmap(lambda r: r[r.argmax()][None])(x),
  'public_matrix': lambda x: x @ jnp.ones((3, 2)),
  'outer': lambda x: jnp.einsum('ij,ik->ijk', x, x),
  'transposed': lambda x: (2 * x.T).T,
  'moved_axis': lambda x: jnp.moveaxis(x[None] * jnp.ones((2, 1, 1)), 1, 0),
  'reshaped': lambda x: x.reshape(4, 3, 1).reshape(4, -1),
  'halves_joined': joined,
  'padded_and_cut': lambda x: jnp.pad(x, ((0, 2), (0, 0)))[:4],
  'chunks': lambda x: jnp.sin(x.reshape(2, 2, 3)).reshape(4, 3),
  'mapped_in_batches': lambda x: lax.map(jnp.sin, x, batch_size=2),
  'uneven_batches': lambda x: lax.map(jnp.sin, x, batch_size=3),
  'scanned': lambda x: lax.scan(lambda c, r: (c + 1, r * c), 0.0, x)[1],
  'steps': lambda x: lax.fori_loop(0, 3, lambda i, c: c - 0.1 * (c - x), x),
  'remat': lambda x: jax.vmap(jax.grad(
    jax.checkpoint(lambda r: jnp.sin(r).sum())))(x),
  'convolved': lambda x: jax.vmap(
    lambda r: jnp.convolve(r, jnp.ones(2), 'same'))(x),
  'reference': by_reference,
}  # fmt: skip


def carried(w, x, key):
  key, own = random.split(key)
  return w + add(own, x), key


def keys_in_scan(w, x, key):
  return lax.scan(lambda c, _: (carried(*c[:1], x, c[1]), None), (w, key),
    length=4)[0]  # fmt: skip


def public_reference(w, x, key):
  box = jax.new_ref(w)
  box[...] += add(key, x)
  return box[...]


def two_scales(x, key):
  first = add(fold(key, 0), x)
  return add(fold(key, 1), x, max_norm=1 + jnp.abs(first[0]))


def sgd(w, x, key):
  loss = lambda w, row: ((w[None] - row) ** 2).mean()
  fn = sums.noisy_gradient_sum(
    loss, max_norm=1.0, noise_multiplier=2.0, microbatch_size=2
  )
  return scan(lambda i: fn(fold(key, i), w, x, jnp.ones(4))[0])


# Programs, and how many releases they make.
CALLS = {
  'sum': (lambda w, x, key: w + add(key, x), 1),
  'tree': (lambda x, key: add(key, {'a': x, 'b': x[:, :1]}), 1),
  'own_mask': (lambda x, key: add(key, x, mask=x[:, 0] > 0), 1),
  'parts': (lambda x, key: finish(once(x) + noise(key)), 1),
  'present': (lambda x, y, key: finish(noise(key) + total(
    jnp.where((y > 0)[:, None], rows(x), 0))), 1),
  'lane_by_lane': (lambda x, key: MEAN.released(lax.scan(
    lambda c, r: (c + MEAN.contribution(r), None), jnp.zeros(3, 'uint32'), x
    )[0], key), 1),
  'folds': (lambda x, key: add(fold(key, 0), x) - add(fold(key, 1), x), 2),
  'scan': (lambda x, key: scan(lambda i: add(fold(key, i), i * x), 50), 50),
  'scanned_keys': (lambda x, key: lax.scan(lambda c, k: (
    c + add(k, x), None), jnp.zeros(3), random.split(key, 4))[0], 4),
  'fori_loop': (lambda w, x, key: lax.fori_loop(
    0, 3, lambda i, c: c + add(fold(key, i), x - c[None]), w), 3),
  'two_loops': (lambda x, key: scan(lambda a: scan(
    lambda i: add(fold(fold(key, a), i), x))), 9),
  'released_scale': (two_scales, 2),
  'released_branch': (lambda x, key: jax.nn.relu(lax.cond(
    add(key, x)[0] > 0, jnp.sin, jnp.cos, add(fold(key, 1), x))), 2),
  'public_reference': (public_reference, 1),
  'sgd': (sgd, 3),
  'carried_key': (carried, 1),
  'keys_in_scan': (keys_in_scan, 4),
}  # fmt: skip
KEY_RESULTS = 'carried_key', 'keys_in_scan'  # whose second result is a key


class Round(NamedTuple):
  """A private round, and how many releases it makes."""

  make: rounds.Make
  releases: int = 1
  params: Any = cases.PARAMS
  batches: Any = None  # None: those of `cases`
  trust: str = 'central'


def local(params, batches, key, correction):
  del key, correction
  return jax.tree.map(lambda p: p + batches[0].mean(), params), {}


def chained(*links, uplink=None):
  """A private mean, or another uplink of it, and links of the server."""

  def make(hp):
    p = cases.RELEASE.with_hyper(hp)
    first = p.uplink() if uplink is None else uplink(p)
    down = t.broadcast(), *links, optax.scale(-1.0)
    return rounds.federated(local, first, *down)

  return lambda: Round(make, 1 if uplink in (None, kept) else 2)


def two_means(p):
  def update(x, state, params=None, *, means, **extra):
    mean, square = (mean(v, **extra)[0] for mean, v in zip(
      means, (x, jax.tree.map(jnp.square, x)), strict=True))  # fmt: skip
    return jax.tree.map(lambda m, v: m / (1 + jnp.abs(v)), mean, square), state

  means = [p.mean(0), p.mean(1)]
  return chain.exchange(lambda _: comms.bill(), update, means=means)


def kept(p):
  """Clients keep what they did not send, and part of the announced mean."""

  def update(x, state, params=None, *, means, comm, **extra):
    told = jax.tree.map(jnp.add, x, state.value)
    sent = jax.tree.map(jnp.sign, told)
    mean = comm.announce(means[0](sent, comm=comm, **extra)[0])
    rest = lambda a, b, m: a - b + 0.1 * m[None]
    return mean, comms.PerClient(jax.tree.map(rest, told, sent, mean))

  return chain.exchange(comms.PerClient, update, means=[p.mean(0)])


def over_realised_cohort(hp):
  """Under local trust weights are public: each client's message is noised."""
  link = private_mean.LocalRelease(4.0).with_hyper(hp).uplink()

  def update(*args, comm, weight, **extra):
    mean, state = link.update_fn(*args, comm=comm, weight=weight, **extra)
    return jax.tree.map(lambda x: x * 4 / comm.total(weight), mean), state

  made = dataclasses.replace(link, update_fn=update)
  return rounds.federated(local, made, t.broadcast(), optax.scale(-1.0))


def training(loss_fn, params, batches=None):
  make = algorithms.make('dp_fedavg', loss_fn, privacy=cases.RELEASE)
  return Round(make, 1, params, batches)


def model(case):
  def build():
    made = case() if callable(case) else case
    params, loss_fn, _ = any_models.start(made)
    batches = made.arrays(np.random.default_rng(0), (4, 3, 5))
    return training(loss_fn, params, batches)

  return build


def of_equinox():
  linear = pytest.importorskip('equinox').nn.Linear(3, 5, key=cases.KEY)
  arrays = lambda rng, shape: {
    'x': any_models.normal(rng, *shape, 3), 'y': np.zeros(shape, np.int32)
  }  # fmt: skip
  return any_models.Case(linear, 'cross_entropy', arrays)


narrow = {'dtype': 'bfloat16', **any_models.SMALL}
ROUNDS = {
  'plain': chained(),
  'momentum': chained(optax.trace(0.9)),
  'adam': chained(optax.scale_by_adam()),
  'clipped': chained(optax.clip_by_global_norm(1.0)),
  'two_means': chained(uplink=two_means),
  'kept_error': chained(uplink=kept),
  'over_realised_cohort': lambda: Round(over_realised_cohort, trust='local'),
  'lora': lambda: training(cases.loss_fn, algorithm_list.ADAPTED),
  'nnx': model(any_models.CASES['nnx']),
  'remat': model(any_models.CASES['gpt']),
  'loops': model(any_models.CASES['fori_loop']),
  'branches': model(any_models.CASES['cond']),
  'bfloat16': model(lambda: any_models.of_sentences('gpt_nano', **narrow)),
  'equinox': model(of_equinox),
}  # fmt: skip
