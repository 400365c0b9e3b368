"""Rounds in which clients' data reach a public value without noise."""

from typing import Any, NamedTuple

import cases
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import chain, comms, keys as keys_lib, transforms as t
import jax
import jax.numpy as jnp
import numpy as np
import optax
import private_cases as private


class Seen(NamedTuple):
  """What a link of an own algorithm can read."""

  payloads: Any  # [lanes, 10]
  weight: jax.Array
  ids: jax.Array
  noise: Any
  w: jax.Array  # f32[4, 2], of the released mean
  rows: Any  # state of clients, [lanes, 10]


class State(NamedTuple):
  """State of the link."""

  rows: comms.PerClient
  shared: jax.Array
  bill: comms.Bill


count = lambda s: comms.Shards().total(s.weight)
total = lambda s: comms.Shards().sum(s.payloads['w'].sum(0))
whole = lambda s: count(s).astype(jnp.int32) % 2


@jax.custom_jvp
def doubled(x):
  return 2 * x


@jax.custom_vjp
def tripled(x):
  return 3 * x


doubled.defjvp(lambda x, dx: (doubled(x[0]), 2 * dx[0]))
tripled.defvjp(lambda x: (3 * x, None), lambda _, dx: (3 * dx,))


def by_scan(s):
  add = lambda carry, _: (carry + count(s), None)
  return s.w + jax.lax.scan(add, jnp.float32(0), None, length=2)[0]


def by_carry(s):
  # The data reach what is returned in the second step only.
  later = lambda _, c: (c[0] + c[1], count(s))
  return jax.lax.fori_loop(0, 2, later, (s.w, 0.0))[0]


def by_loop_length(s):
  return jax.lax.while_loop(lambda w: w[0, 0] < count(s), lambda w: w + 1, s.w)


def by_reference(s):
  box = jax.new_ref(jnp.float32(0))
  box[...] = count(s)
  return s.w + box[...]


def to_callback(s):
  jax.debug.callback(lambda x: None, total(s))
  return s.w


def by_pure_callback(s):
  like = jax.ShapeDtypeStruct((), jnp.float32)
  known = jax.pure_callback(lambda x: np.float32(x), like, count(s))
  return s.w + known


def branch_tells_host(s):
  tell = lambda: jax.debug.print('a client is here')
  jax.lax.cond(count(s) > 2, tell, lambda: None)
  return s.w


# What is broadcast in place of the released mean w.
SENT = {
  'plain_mean': lambda s: s.w + total(s) / 4,
  'payloads': lambda s: s.w + comms.Shards().total(s.payloads['w'][0, 0, 0]),
  'weight': lambda s: s.w * count(s),
  'cond': lambda s: jax.lax.cond(count(s) > 2, lambda: s.w, lambda: -s.w),
  'switch': lambda s: jax.lax.switch(whole(s), [jnp.sin, jnp.cos], s.w),
  'while': by_loop_length,
  'scan': by_scan,
  'carry': by_carry,
  'scatter': lambda s: s.w.at[whole(s), 0].set(1.0),
  'gather': lambda s: s.w[whole(s)][None],
  'custom_jvp': lambda s: s.w + doubled(total(s)),
  'custom_vjp': lambda s: s.w + tripled(total(s)),
  'remat': lambda s: s.w + jax.checkpoint(jnp.sin)(total(s)),
  'jit': lambda s: jax.jit(jnp.add)(s.w, total(s)),
  'callback': to_callback,
  'pure_callback': by_pure_callback,
  'branch_tells_host': branch_tells_host,
  'reference': by_reference,
  'secret_key': lambda s: s.w - jax.random.normal(s.noise.server, (4, 2)),
}
TO_HOST = 'callback', 'pure_callback', 'branch_tells_host'
# State of clients that has another client's data.
ROWS = {
  'rolled_rows': lambda s: jnp.roll(s.payloads['w'], 1, 0),
  'first_row': lambda s: s.payloads['w'][:1] + s.rows,
  'reversed_rows': lambda s: s.rows[::-1],
  'mean_in_rows': lambda s: s.rows + s.payloads['w'].mean(0)[None],
  'total_in_rows': lambda s: s.rows + total(s)[None],
  'gathered_rows': lambda s: s.payloads['w'][s.ids % 2],
  'sorted_rows': lambda s: jnp.sort(s.payloads['w'], 0),
  'centred_rows': lambda s: s.rows - s.rows.mean(0)[None],
  'product_rows': lambda s: jnp.einsum(
    'ij,jkl->ikl', s.payloads['w'][:, :2, 0], s.rows),
  'gram_rows': lambda s: jnp.einsum('iab,jab,jkl->ikl', s.rows, s.rows, s.rows),
}  # fmt: skip
of_rows = lambda s: comms.Shards().total(s.rows[:, 0, 0])
SHARED = {'shared_state': count, 'sum_of_rows': of_rows}
PUBLIC_NOISE = 'noise_of_a_public_key'
NAMES = (*SENT, *ROWS, *SHARED, PUBLIC_NOISE)


def make(name: str, hp: Any = private.HP):
  """The private round with such a leak; no other name has one."""
  mean_of = private_mean.CentralRelease(4.0).with_hyper(hp).mean(0)

  def init(params):
    rows = comms.PerClient(jnp.zeros((4, 2)))
    return State(rows, jnp.float32(0), comms.bill())

  def update(payloads, state, params=None, *, means, weight, ids, **extra):
    del params
    noise = extra['noise']
    if name == PUBLIC_NOISE:
      public = keys_lib.noise_keys(cases.KEY, jnp.int32(0))
      extra['noise'] = keys_lib.for_lanes(public, ids)
    mean, bill = means[0](payloads, weight=weight, ids=ids, **extra)
    rows = state.rows.value
    seen = Seen(payloads, weight, ids, noise, mean['w'], rows)
    mean = mean | {'w': SENT.get(name, lambda s: s.w)(seen)}
    new_rows = ROWS.get(name, lambda s: s.rows + s.payloads['w'])(seen)
    shared = SHARED.get(name, lambda s: state.shared)(seen)
    return mean, State(comms.PerClient(new_rows), shared, bill)

  def local(params, batches, key, correction):
    return batches, {'norm': jnp.float32(1)}

  link = chain.exchange(init, update, means=[mean_of])
  return rounds.federated(local, link, t.broadcast(), optax.scale(-1.0))
