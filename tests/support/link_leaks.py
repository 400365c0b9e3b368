"""Own uplinks of private rounds whose noise hides less than epsilon says."""

import dataclasses
from typing import Any, NamedTuple

from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import grid as grid_lib, private_mean
from fl_sketch.rounds import chain, comms, keys as keys_lib, transforms as t
import jax
import jax.numpy as jnp
import optax
import private_cases as private

tree, fold, select = jax.tree.map, jax.random.fold_in, jnp.where


class Uplink(NamedTuple):
  """What an own uplink can read."""

  p: private_mean.PrivateMean
  extra: dict[str, Any]  # of a link
  sum: Any = None  # of contributions over the cohort, uint32
  payloads: Any = None  # in an exchange, [lanes, ...]

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


def largest(u):
  rows = jax.vmap(u.p.contribution)(u.payloads)
  return u.get(tree(lambda x: jax.lax.pmax(x.max(0), 'shard'), rows))


def other_order(u):
  rows = jax.vmap(u.p.contribution)(u.payloads)
  total = u.extra['comm'].sum_lanes(tree(lambda x: x + x[::-1], rows))
  return u.get(total)


each = lambda f: lambda u: u.get(tree(lambda x: f(x, u.count), u.sum))
minus = lambda x, y: tree(jnp.subtract, x, y)
whole = lambda count: count.astype(jnp.uint32)
ANNOUNCED = 'reach (the broadcast|an announcement)'
SEVERAL = 'draws one noise for several releases'
EVERY = 'draws the same noise in every round'
SUM, OTHER = 'other than as a sum of contributions', 'noise of another bound'
SCALE, OTHERS = (
  'a scale of noise or bound that depends on',
  'of other clients reach',
)
# Results of an uplink of a sum, and what the message must say.
SUMMED = {
  'N1-announced_sum': (lambda u: announced(u, u.sum), ANNOUNCED),
  'N1-announced_count': (lambda u: announced(u, u.count), ANNOUNCED),
  'N1-broadcast_sum': (lambda u: (u.get(u.sum), u.sum), ANNOUNCED),
  'N1-broadcast_count': (lambda u: (u.get(u.sum), u.count), ANNOUNCED),
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
  'N6-integers': (each(lambda x, n: x + whole(n)), SUM),
  'N6-doubled': (each(lambda x, n: x + x), SUM),
  'N6-again': (each(lambda x, n: comms.Shards().sum(x)), SUM),
  'N6-divided': (each(lambda x, n: x // whole(n)), SUM),
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
  'N6-unbounded': (lambda p, x: grid_lib.encode(x, p.grid(x)), SUM),
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
  'N5-rolled': (lambda u: u.mean(tree(
    lambda x: jnp.roll(x, 1, 0), u.payloads)), OTHERS),
  'N6-other_order': (other_order, SUM),
  'N6-largest': (largest, SUM),
}  # fmt: skip
LINKS = SUMMED | DECODED | EXCHANGED


def make(name: str, hp: Any = private.HP):
  """The algorithm whose uplink has such a leak."""
  p, (fn, _) = private_mean.CentralRelease(4.0).with_hyper(hp), LINKS[name]
  plain = p.uplink()

  def update(x, state, params=None, **extra):
    if name in EXCHANGED:
      return fn(Uplink(p, extra, payloads=x)), state
    return fn(Uplink(p, extra, comms.Shards().sum(x.total))), state

  made = dataclasses.replace(plain, update_fn=update)
  if name in DECODED:
    decode = lambda keys, payload, like: fn(p, payload)
    made = dataclasses.replace(plain, decode=decode)
  elif name in EXCHANGED:
    made = chain.Link(plain.init_fn, update, chain.EXCHANGE, **p.marks)
  local = lambda params, batches, key, correction: (batches, {})
  first = lambda x, *_, **__: x[0] if isinstance(x, tuple) else x
  links = made, t.broadcast(), t.stateless(first), optax.scale(-1.0)
  return rounds.federated(local, *links)
