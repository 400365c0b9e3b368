"""Own uplinks whose noise hides less than epsilon says: they are refused."""

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

tree, fold, select = jax.tree.map, jax.random.fold_in, jnp.where


class State(NamedTuple):
  """State of an exchange."""

  rows: comms.PerClient
  shared: jax.Array
  bill: comms.Bill


class Uplink(NamedTuple):
  """What an own uplink can read."""

  p: private_mean.PrivateMean
  extra: dict[str, Any]  # of a link
  sum: Any = None  # of contributions over the cohort, uint32
  payloads: Any = None  # in an exchange, [lanes, ...]
  rows: Any = None  # state of clients, [lanes, 4, 2]
  w: Any = None  # f32[4, 2], of the released mean

  def get(self, x, key=None):
    """Release a sum, under the server's key of the round."""
    key = self.extra['noise'].server if key is None else key
    return self.p.released(x, key)

  def mean(self, x, index=0, **numbers):
    """Take the private mean of payloads, with other numbers if given."""
    p = self.p._replace(hp=self.p.hp._replace(**numbers))
    return p.mean(index).take(x, **self.extra)[0]

  def key(self, r):
    """The server's key of another round."""
    return keys_lib.server_key(self.extra['noise'], r)

  @property
  def round(self):
    return self.extra['keys'].round_index

  @property
  def count(self):
    return comms.Shards().total(self.extra['weight'])

  @property
  def contributions(self):
    return jax.vmap(self.p.contribution)(self.payloads)


total = lambda u: comms.Shards().sum(u.payloads['w'].sum(0))
whole = lambda u: u.count.astype(jnp.int32) % 2


@jax.custom_vjp
def tripled(x):
  return 3 * x


tripled.defvjp(lambda x: (3 * x, None), lambda _, dx: (3 * dx,))


def by_carry(u):
  # The data reach what is returned in the second step only.
  later = lambda _, c: (c[0] + c[1], u.count)
  return jax.lax.fori_loop(0, 2, later, (u.w, 0.0))[0]


def by_loop_length(u):
  return jax.lax.while_loop(lambda w: w[0, 0] < u.count, lambda w: w + 1, u.w)


def by_reference(u):
  box = jax.new_ref(jnp.float32(0))
  box[...] = u.count
  return u.w + box[...]


def to_callback(u):
  jax.debug.callback(lambda x: None, total(u))
  return u.w


def branch_tells_host(u):
  tell = lambda: jax.debug.print('a client is here')
  jax.lax.cond(u.count > 2, tell, lambda: None)
  return u.w


def announced(u, x):
  u.extra['comm'].announce(x)
  return u.get(u.sum)


def fifty(u):
  of = lambda i: u.get(u.sum, fold(u.extra['noise'].server, i))
  means = jax.lax.scan(lambda c, i: (c, of(i)), 0, jnp.arange(50))[1]
  return tree(lambda x: x.mean(0), means)


def overlapping(u):
  step = lambda i, _: (i + 1, u.get(u.sum, u.key(i)))
  means = jax.lax.scan(step, u.round, None, length=2)[1]
  return tree(lambda x: x.mean(0), means)


def mean_norm(u):
  return comms.Shards().total(jax.vmap(optax.tree.norm)(u.payloads)) / u.count


def centred(u):
  off = lambda x: x - comms.Shards().sum(x.sum(0))[None] / 4
  return u.mean(tree(off, u.payloads))


def of_lanes(change):
  """A release of a sum of what a function makes of contributions."""
  return lambda u: u.get(
    u.extra['comm'].sum_lanes(tree(change, u.contributions))
  )


def largest(u):
  return u.get(tree(lambda x: jax.lax.pmax(x.max(0), 'shard'), u.contributions))


def public_noise(u):
  keys = keys_lib.noise_keys(cases.KEY, jnp.int32(0))
  keys = keys_lib.for_lanes(keys, u.extra['ids'])
  return u._replace(extra=u.extra | {'noise': keys}).mean(u.payloads)


each = lambda f: lambda u: u.get(tree(lambda x: f(x, u.count), u.sum))
minus = lambda x, y: tree(jnp.subtract, x, y)
unsigned = lambda count: count.astype(jnp.uint32)
W, TO_HOST = r"reach an announcement\['w'\]", 'reach the host, by'
IN_ROWS = r'of other clients reach state\.protocol.*rows'
SHARED = r'reach state\.protocol.*shared'
ANNOUNCED = 'reach (the broadcast|an announcement)'
SEVERAL = 'draws one noise for several releases'
EVERY = 'draws the same noise in every round'
SUM, OTHER = 'other than as a sum of contributions', 'noise of another bound'
SCALE, OTHERS = (
  'a scale of noise or bound that depends on',
  'of other clients reach a contribution',
)
# What is broadcast in place of the released mean w.
SENT = {
  'plain_mean': (lambda u: u.w + total(u) / 4, W),
  'cond': (lambda u: jax.lax.cond(u.count > 2, lambda: u.w, lambda: -u.w), W),
  'while': (by_loop_length, W),
  'carry': (by_carry, W),
  'gather': (lambda u: u.w[whole(u)][None], W),
  'custom_jvp': (lambda u: u.w + jax.nn.relu(total(u)), W),
  'custom_vjp': (lambda u: u.w + tripled(total(u)), W),
  'remat': (lambda u: u.w + jax.checkpoint(jnp.sin)(total(u)), W),
  'callback': (to_callback, TO_HOST),
  'branch_tells_host': (branch_tells_host, TO_HOST),
  'reference': (by_reference, W),
  'secret_key': (lambda u: u.w - jax.random.normal(
    u.extra['noise'].server, (4, 2)), W),
}  # fmt: skip
# State of clients that has another client's data.
ROWS = {
  'rolled_rows': (lambda u: jnp.roll(u.payloads['w'], 1, 0), IN_ROWS),
  'mean_in_rows': (lambda u: u.rows + u.payloads['w'].mean(0)[None], IN_ROWS),
  'total_in_rows': (lambda u: u.rows + total(u)[None], IN_ROWS),
  'gram_rows': (lambda u: jnp.einsum(
    'iab,jab,jkl->ikl', u.rows, u.rows, u.rows), IN_ROWS),
}  # fmt: skip
STATE = {
  'shared_state': (lambda u: u.count, SHARED),
  'sum_of_rows': (lambda u: comms.Shards().total(u.rows[:, 0, 0]), SHARED),
}
# Results of an uplink of a sum, and what the message must say.
SUMMED = {
  'N1-announced_sum': (lambda u: announced(u, u.sum), ANNOUNCED),
  'N1-announced_count': (lambda u: announced(u, u.count), ANNOUNCED),
  'N1-broadcast_sum': (lambda u: (u.get(u.sum), u.sum), ANNOUNCED),
  'N2-run': (lambda u: u.get(u.sum, u.extra['noise'].run), EVERY),
  'N2-round_0': (lambda u: u.get(u.sum, u.key(0)), EVERY),
  'N2-pairs': (lambda u: u.get(u.sum, u.key(u.round // 2)), EVERY),
  'N2-next': (lambda u: minus(u.get(u.sum), u.get(u.sum, u.key(u.round + 1))),
    'releases 2 times'),
  'N2-twice': (lambda u: minus(u.get(u.sum), u.get(tree(
    jnp.add, u.sum, u.sum))), f'{SEVERAL}|{SUM}'),
  'N2-overlapping': (overlapping, EVERY),
  'N3-fifty': (fifty, 'releases 50 times'),
  'N4-quiet': (lambda u: u._replace(p=u.p._replace(hp=private.HP._replace(
    noise_multiplier=u.p.hp.noise_multiplier / 10))).get(u.sum), OTHER),
  'N6-integers': (each(lambda x, n: x + unsigned(n)), SUM),
  'N6-doubled': (each(lambda x, n: x + x), SUM),
  'N6-again': (each(lambda x, n: comms.Shards().sum(x)), SUM),
  'N6-divided': (each(lambda x, n: x // unsigned(n)), SUM),
  'N6-selected': (each(lambda x, n: select(n > 2, x, 0)), SUM),
  'N6-skipped': (lambda u: tree(lambda x: select(u.count > 0, x, 0),
    u.get(u.sum)), 'cohort.weight reach an announcement'),
}  # fmt: skip
# What is summed in place of the contribution of a payload.
DECODED = {
  'N3-arrays': (lambda p, x: tree(p.contribution, x), f'{SUM}|{OTHER}'),
  'N4-larger': (lambda p, x: grid_lib.encode(p._replace(hp=p.hp._replace(
    clip_norm=8 * p.hp.clip_norm)).clipped(x), p.grid(x)), f'{SUM}|{OTHER}'),
  'N6-times_100': (lambda p, x: tree(lambda a: 100 * a, p.contribution(x)),
    SUM),
  'N6-unbounded_part': (lambda p, x: p.contribution(x) | {
    'b': grid_lib.encode(x['b'], p.grid(x))}, SUM),
  'N6-rolled': (lambda p, x: tree(
    lambda a: a + jnp.roll(a, 1, 0), p.contribution(x)), SUM),
}  # fmt: skip
# Results of an exchange with one declared mean.
EXCHANGED = {
  'N2-by_hand': (lambda u: minus(u.mean(u.payloads), u.mean(tree(
    lambda x: 2 * x, u.payloads))), SEVERAL),
  'N3-two': (lambda u: tree(jnp.add, u.mean(u.payloads), u.mean(
    u.payloads, 1)), 'releases 2 times'),
  'N3-by_array': (lambda u: {k: u.mean(u.payloads[k], i) for i, k in enumerate(
    u.payloads)}, 'releases 2 times'),
  'N4-mean_norm': (lambda u: u.mean(u.payloads, clip_norm=mean_norm(u)), SCALE),
  'N4-by_count': (lambda u: u.mean(u.payloads, noise_multiplier=8 / u.count),
    SCALE),
  'N5-centred': (centred, OTHERS),
  'N6-other_order': (of_lanes(lambda x: x + x[::-1]), SUM),
  'N6-largest': (largest, SUM),
  'N9-public_key': (public_noise, 'reach a release'),
}  # fmt: skip
LEAKS = SENT | ROWS | STATE | SUMMED | DECODED | EXCHANGED
# It is none under central trust: its clients send what has no noise.
OF_SERVER = 'noise of the server, not of each client'
BARE = {'server_noise': (of_lanes(lambda x: x), OF_SERVER)}


def send(params, batches, key, correction):
  return batches, {'norm': jnp.float32(1)}


def make(name: str, p: private_mean.PrivateMean, local: Any = send):
  """The private round with such a leak; 'none' has none."""
  kept = lambda value: lambda u: value
  found = lambda leaks, other: leaks.get(name, (other, ''))[0]

  def init(params):
    rows = comms.PerClient(jnp.zeros((4, 2)))
    return State(rows, jnp.float32(0), comms.bill())

  def exchange(x, state, params=None, **extra):
    u = Uplink(p, extra, payloads=x, rows=state.rows.value)
    if name in EXCHANGED | BARE:
      return found(EXCHANGED | BARE, None)(u), state
    mean, bill = p.mean(0).take(x, **extra)
    u = u._replace(w=mean['w'])
    mean |= {'w': found(SENT, kept(u.w))(u)}
    rows = comms.PerClient(found(ROWS, lambda u: u.rows + x['w'])(u))
    return mean, State(rows, found(STATE, kept(state.shared))(u), bill)

  def summed(x, state, params=None, **extra):
    u = Uplink(p, extra, comms.Shards().sum(x.total))
    return found(SUMMED, lambda u: u.get(u.sum))(u), state

  decode = found(DECODED, lambda p, payload: p.contribution(payload))
  by_sum = name in SUMMED | DECODED
  update, kind = (
    (summed, chain.UPLINK) if by_sum else (exchange, chain.EXCHANGE)
  )
  link = chain.Link(
    init, update, kind, decode=lambda keys, x, like: decode(p, x), **p.marks
  )
  first = lambda x, *_, **__: x[0] if isinstance(x, tuple) else x
  links = link, t.broadcast(), t.stateless(first), optax.scale(-1.0)
  return rounds.federated(local, *links)


def cohort():
  """Four clients for such a round."""
  zeros = {'w': np.zeros((4, 4, 2), 'f'), 'b': np.zeros((4, 2), 'f')}
  return rounds.Cohort(np.arange(4, dtype='i4'), np.ones(4, 'f'), zeros)
