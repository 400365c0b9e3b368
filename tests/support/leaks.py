"""Rounds in which clients' data reach a public value without noise."""

import dataclasses
from typing import Any, NamedTuple

import cases
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import grid as grid_lib, private_mean
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
TO_HOST = 'callback', 'pure_callback', 'branch_tells_host', 'reference'
# State of clients that has another client's data.
ROWS = {
  'rolled_rows': lambda s: jnp.roll(s.payloads['w'], 1, 0),
  'first_row': lambda s: s.payloads['w'][:1] + s.rows,
  'reversed_rows': lambda s: s.rows[::-1],
  'mean_in_rows': lambda s: s.rows + s.payloads['w'].mean(0)[None],
  'total_in_rows': lambda s: s.rows + total(s)[None],
  'gathered_rows': lambda s: s.payloads['w'][s.ids % 2],
}
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


class Summed(NamedTuple):
  """What a changed private uplink can read."""

  p: private_mean.PrivateMean
  sum: Any  # of contributions over the cohort, uint32
  noise: Any
  keys: Any
  count: jax.Array  # of the clients that took part
  comm: Any
  payloads: Any = None  # in an exchange, [lanes, ...]
  mean: Any = None  # its one mean, of payloads
  extra: Any = None  # for another mean


SEVERAL = 'draws one noise for several releases'
EVERY = 'draws the same noise in every round'
SUM = 'reach a release other than as a sum of contributions'
OTHER = 'noise of another bound'
SCALE = 'a scale of noise or bound depends on'
tree, fold = jax.tree.map, jax.random.fold_in
later = lambda s, n: keys_lib.server_key(s.noise, n)
times = lambda factor, x: tree(lambda a: factor * a, x)
minus = lambda x, y: tree(jnp.subtract, x, y)
server = lambda s, x: s.p.released(x, s.noise.server)


def with_(p, **factors):
  """The mean with multiples of its clip norm or noise multiplier."""
  scaled = {k: getattr(p.hp, k) * x for k, x in factors.items()}
  return p._replace(hp=p.hp._replace(**scaled))


def announced(s, x):
  s.comm.announce(x)
  return server(s, s.sum)


def by_steps(s):
  step = lambda c, i: (c, s.p.released(s.sum, fold(s.noise.server, i)))
  means = jax.lax.scan(step, 0, jnp.arange(50))[1]
  return tree(lambda x: x.mean(0), means)


def by_array(s):
  one = lambda i, k: s.p.mean(i).take(s.payloads[k], **s.extra)[0]
  return {'b': one(0, 'b'), 'w': one(1, 'w')}


def by_hand(s):
  again = s.p.mean(0).take(times(2.0, s.payloads), **s.extra)[0]
  return minus(again, s.mean(s.payloads))


def undeclared(s):
  more = s.p.mean(1).take(s.payloads, **s.extra)[0]
  return times(0.5, tree(jnp.add, more, s.mean(s.payloads)))


def with_state_bound(s):
  norms = jax.vmap(optax.tree.norm)(s.payloads)
  norm = s.comm.total(norms) / s.count
  p = s.p._replace(hp=s.p.hp._replace(clip_norm=norm))
  return p.mean(0).take(s.payloads, **s.extra)[0]


def centred(s):
  center = tree(lambda x: s.comm.sum(x.sum(0)) / 4, s.payloads)
  return s.mean(tree(lambda x, c: x - c[None], s.payloads, center))


def largest(s):
  return server(s, tree(lambda x: jax.lax.pmax(x.max(0), 'shard'), encoded(s)))


encoded = lambda s: jax.vmap(s.p.contribution)(s.payloads)
# Results of a private uplink: class, program, message.
SUMMED = {
  'announced_sum': ('N1', lambda s: announced(s, s.sum), 'reach the broadcast'),
  'announced_count': ('N1', lambda s: announced(s, s.count),
    'cohort.weight reach the broadcast'),
  'broadcast_sum': ('N1', lambda s: (server(s, s.sum), s.sum),
    'reach the broadcast'),
  'broadcast_count': ('N1', lambda s: (server(s, s.sum), s.count),
    'cohort.weight reach the broadcast'),
  'run_key': ('N2', lambda s: s.p.released(s.sum, s.noise.run), EVERY),
  'key_of_round_0': ('N2', lambda s: s.p.released(s.sum, later(s, 0)), EVERY),
  'key_of_two_rounds': ('N2', lambda s: s.p.released(
    s.sum, later(s, s.keys.round_index // 2)), EVERY),
  'key_of_next_round': ('N2', lambda s: tree(jnp.add, server(s, s.sum),
    s.p.released(s.sum, later(s, s.keys.round_index + 1))),
    f'{SEVERAL}|{EVERY}'),
  'released_twice': ('N2', lambda s: minus(
    server(s, s.sum), server(s, times(2, s.sum))), SEVERAL),
  'fifty': ('N3', by_steps, 'releases 50 times'),
  'less_noise': ('N4', lambda s: with_(s.p, noise_multiplier=0.1).released(
    s.sum, s.noise.server), OTHER),
  'noise_by_count': ('N4', lambda s: with_(s.p, noise_multiplier=1 / s.count)
    .released(s.sum, s.noise.server), SCALE),
  'integers_added': ('N6', lambda s: server(s, tree(
    lambda x: x + s.count.astype('uint32'), s.sum)), SUM),
  'twice_the_sum': ('N6', lambda s: server(s, tree(jnp.add, s.sum, s.sum)),
    SUM),
  'summed_twice': ('N6', lambda s: server(s, s.comm.sum(s.sum)), SUM),
  'before_noise': ('N6', lambda s: server(s, tree(
    lambda x: x // s.count.astype('uint32'), s.sum)), SUM),
  'selected': ('N6', lambda s: server(s, tree(
    lambda x: jnp.where(s.count > 2, x, 0), s.sum)), SUM),
  'skipped_round': ('N6', lambda s: tree(
    lambda x: jnp.where(s.count > 0, x, 0), server(s, s.sum)),
    'cohort.weight reach state'),
}  # fmt: skip
# What a client adds to the sum, in place of its contribution.
DECODED = {
  'times_100': ('N6', lambda p, x: times(100, p.contribution(x)), SUM),
  'no_bound': ('N6', lambda p, x: grid_lib.encode(x, p.grid(x)), SUM),
  'array_bounds': ('N3', lambda p, x: tree(p.contribution, x),
    f'{SUM}|{OTHER}'),
  'larger_bound': ('N4', lambda p, x: grid_lib.encode(
    with_(p, clip_norm=8.0).clipped(x), p.grid(x)), f'{SUM}|{OTHER}'),
  'unbounded_part': ('N6', lambda p, x: p.contribution(x) | {
    'b': grid_lib.encode(x['b'], p.grid(x))}, SUM),
  'rolled_contribution': ('N6', lambda p, x: tree(
    lambda a: a + jnp.roll(a, 1, 0), p.contribution(x)), SUM),
}  # fmt: skip
# Results of an exchange with one private mean.
EXCHANGED = {
  'take_by_hand': ('N2', by_hand, SEVERAL),
  'array_by_array': ('N3', by_array, 'releases 2 times'),
  'two_means': ('N3', undeclared, 'releases 2 times'),
  'mean_norm_bound': ('N4', with_state_bound, SCALE),
  'centred_payloads': ('N5', centred, 'of other clients reach a contribution'),
  'rolled_payloads': ('N5', lambda s: s.mean(
    tree(lambda x: jnp.roll(x, 1, 0), s.payloads)),
    'of other clients reach a contribution'),
  'doubled_rows': ('N6', lambda s: server(s, s.comm.sum_lanes(
    tree(lambda x: x + x[::-1], encoded(s)))), SUM),
  'largest_of_all': ('N6', largest, SUM),
}  # fmt: skip
LINKS = SUMMED | DECODED | EXCHANGED
MORE_ROWS = {
  'product_rows': lambda s: jnp.einsum(
    'ij,jkl->ikl', jnp.ones((2, 2)), s.payloads['w']),
  'gram_rows': lambda s: jnp.einsum(
    'iab,jab,jkl->ikl', s.payloads['w'], s.payloads['w'], s.rows),
  'sorted_rows': lambda s: jnp.sort(s.payloads['w'], 0),
  'centred_rows': lambda s: s.rows - s.rows.mean(0)[None],
}  # fmt: skip
ROWS |= MORE_ROWS
KEY_ROWS = {'key_in_rows': lambda s: s.rows + jax.random.normal(
  s.noise.server, s.rows.shape)}


def link(name: str, hp: Any = private.HP):
  """The algorithm whose uplink has such a leak."""
  p, (_, fn, _) = private_mean.CentralRelease(4.0).with_hyper(hp), LINKS[name]
  plain = p.uplink()
  local = lambda params, batches, key, correction: (batches, {})

  def summed(lane_sum, state, params=None, *, comm, weight, noise, keys, **_):
    del params
    parts = comm.sum(lane_sum.total), noise, keys, comm.total(weight), comm
    return fn(Summed(p, *parts)), state

  def taken(payloads, state, params=None, **extra):
    del params
    comm, count = extra['comm'], extra['comm'].total(extra['weight'])
    parts = None, extra['noise'], extra['keys'], count, comm, payloads
    mean = lambda x: p.mean(0).take(x, **extra)[0]
    return fn(Summed(p, *parts, mean, extra)), state

  if name in DECODED:
    decode = lambda keys, payload, like: fn(p, payload)
    made = dataclasses.replace(plain, decode=decode)
  elif name in SUMMED:
    made = dataclasses.replace(plain, update_fn=summed)
  else:
    made = chain.Link(plain.init_fn, taken, chain.EXCHANGE, **p.marks)
  first = lambda mean, _: mean[0] if isinstance(mean, tuple) else mean
  drop = t.stateless(lambda mean, params, **_: first(mean, params))
  return rounds.federated(local, made, t.broadcast(), drop, optax.scale(-1.0))
