"""Breaks of private rounds, as by mistake, and which audit finds each."""

from collections.abc import Callable, Mapping
import dataclasses
import types
from typing import Any, NamedTuple

from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import (
  banded_noise,
  clipping,
  discrete_gaussian,
  grid,
  private_mean,
)
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.runs import privacy_plan, sampler
from fl_sketch.runs.config import Config
import jax
import jax.numpy as jnp

FOUND, BOUND, LAW = 'bound and law', 'bound', 'law'
NOT, NONE = 'not found', 'refused'
DENSE = {'algorithm': 'dp_fedavg', 'sketch': None}
POISSON = {'sampling': 'poisson', 'cohort': 20, 'noise_multiplier': 0.8}
BANDED = {'noise': 'banded', 'hash_rounds': 2, 'noise_bands': 2}
QUANTILE = {'bound': 'quantile', 'count_stddev': 10.0}
OFTEN = POISSON | {'max_cohort': 60}
MANY = 'many runs draw cohorts by the law of the account'
MASKED = {'trust': 'secure_aggregation', 'neighbours': 4}
SAFL = {
  'dataset': 'digits', 'model': 'linear', 'standardize': False,
  'population': 60, 'cohort': 60, 'rounds': 4, 'local_steps': 1,
  'batch_size': 0, 'client_lr': 1.0, 'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic', 'size': 600}, 'clip_norm': 0.1,
  'noise_multiplier': 1.4, 'delta': 1e-4,
}  # fmt: skip


class Break(NamedTuple):
  """A break, and what finds it: a bound on epsilon or mu, the law of noise."""

  name: str
  plant: Callable[[Any], None]  # of a MonkeyPatch
  config: str  # what the audit of many runs finds it by
  one_run: str  # that in one run
  fields: Mapping[str, Any] = types.MappingProxyType({})  # of the config
  why: str = ''  # it is not found

  def config_of(self) -> Config:
    """The private SAFL that it is planted in."""
    return Config(
      **{k: v for k, v in (SAFL | {**self.fields}).items() if v is not None}
    )


def _patched(place, name):
  """A break that replaces place.name by what the function makes of it."""

  def decorate(change):
    def plant(patch):
      real = getattr(place, name)
      patch.setattr(place, name, lambda *a, **b: change(real, *a, **b))

    return plant

  return decorate


@_patched(grid, 'make')
def half(real, *, noise_multiplier, **numbers):
  return real(noise_multiplier=noise_multiplier * 0.5**0.5, **numbers)


def bound(change):
  """A break of what clips a contribution; `change` is (tree, C) -> tree."""
  clip = lambda tree, most, **_: (change(tree, most), most)
  return lambda patch: patch.setitem(clipping.BOUNDS, 'clip', clip)


def clipped(tree, most):
  return clipping.clip_by_l2_norm(tree, most)[0]


unclipped = bound(lambda tree, most: tree)
every_leaf = bound(
  lambda tree, most: jax.tree.map(lambda x: clipped(x, most), tree)
)


@_patched(rounds, 'cohort_step')
def public(real, *args, **options):
  step = real(*args, **options)
  return lambda hp, state, cohort, key, data, _: step(
    hp, state, cohort, key, data, key
  )


def of_round(name, other):
  """A break of the function of keys that draws those of another round."""
  return _patched(keys_lib, name)(lambda real, key, t: real(key, other(t)))


same_round = of_round('noise_keys', lambda t: 0 * t)
same_epoch = of_round('server_key', lambda t: t % BANDED['hash_rounds'])


@_patched(keys_lib, 'for_lanes')
def same_share(real, keys, ids):
  return real(keys, 0 * ids if isinstance(keys, keys_lib.NoiseKeys) else ids)


@_patched(grid, 'noise')
def blocks(real, key, like, points):
  repeat = lambda x: jnp.repeat(x.ravel()[::8], 8)[: x.size].reshape(x.shape)
  return jax.tree.map(repeat, real(key, like, points))


@_patched(grid, 'noise')
def same_leaves(real, key, like, points):
  largest = max(jax.tree.leaves(like), key=lambda x: x.size)
  drawn = real(key, largest, points).ravel()
  return jax.tree.map(lambda x: drawn[: x.size].reshape(x.shape), like)


@_patched(grid, 'noise')
def bare_leaf(real, key, like, points):
  first, *rest = jax.tree.leaves(real(key, like, points))
  return jax.tree.unflatten(jax.tree.structure(like), [0 * first, *rest])


@_patched(grid, 'noise')
def uniform(real, key, like, points):
  deviation = discrete_gaussian.stddev(points.base, points.multiple)
  most = 3**0.5 * deviation * (points.noisy * 1.0)
  draw = lambda x: jax.random.uniform(key, x.shape, minval=-most, maxval=most)
  whole = lambda x: jnp.round(draw(x)).astype(jnp.int32).astype(jnp.uint32)
  return jax.tree.map(whole, like)


@_patched(banded_noise, 'draw')
def weight(real, index, noise, like, points, correlation):
  first, second, *rest = correlation.weights
  wrong = dataclasses.replace(correlation, weights=(first, second // 2, *rest))
  return real(index, noise, like, points, wrong)


def _released(change):
  """A break of noise: `change` is (key -> draw, round, its keys) -> noise."""

  def released(_, self, total, keys, noise):
    draw = lambda key: grid.noise(key, total, self.grid(total))
    drawn = change(draw, keys.round_index, noise)
    return self._mean(jax.tree.map(jnp.add, total, drawn))

  return _patched(private_mean.PrivateMean, 'released_in')(released)


def _signed(drawn, signs):
  """The magnitudes of one draw with the signs of another."""
  whole = lambda x: x.astype(jnp.int32)
  new = lambda x, y: jnp.abs(whole(x)) * jnp.sign(whole(y))
  return jax.tree.map(lambda *xs: new(*xs).astype(jnp.uint32), drawn, signs)


_rolled = lambda tree, by: jax.tree.map(lambda x: jnp.roll(x, by), tree)
two_apart = _released(lambda draw, t, noise: _rolled(
  draw(keys_lib.server_key(noise, t % 2)), 5 * t
))  # fmt: skip
four_rounds = _released(lambda draw, t, noise: jax.tree.map(
  lambda x: jnp.where(t < 4, x, 0), draw(noise.server)
))  # fmt: skip
signs = _released(
  lambda draw, t, noise: _signed(draw(noise.server), draw(noise.run))
)


@_patched(keys_lib, 'noise_keys')
def few_keys(real, key, t):
  number = jax.random.bits(real(key, t).server, (), jnp.uint32) & 0xFFF
  return real(jax.random.key(0), number)


@_patched(grid, 'noise')
def cut(real, key, like, points):
  most = jnp.int32(3 * discrete_gaussian.stddev(points.base, points.multiple))
  short = lambda x: jnp.clip(x.astype(jnp.int32), -most, most)
  drawn = real(key, like, points)
  return jax.tree.map(lambda x: short(x).astype(jnp.uint32), drawn)


@_patched(private_mean.PrivateMean, '_take')
def bare_count(real, self, index, *given, **extra):
  z = self.hp.noise_multiplier * (index == 0)  # the count is the second sum
  hp = self.hp._replace(noise_multiplier=z)
  return real(self._replace(hp=hp), index, *given, **extra)


def less_noise(patch):
  less = property(lambda self: 0.7 * self.stated_multiplier)
  patch.setattr(privacy_plan.PrivacyGuarantee, 'noise_multiplier', less)


@_patched(sampler, 'selection')
def often(real, config, *given):
  most = privacy_plan.max_cohort(config)
  return real(
    dataclasses.replace(config, cohort=2 * config.cohort, max_cohort=most),
    *given,
  )


@_patched(sampler, 'selection')
def same_cohort(real, config, t, seed):
  return real(config, 0 * t, seed)


@_patched(private_mean.PrivateMean, 'released_in')
def clipped_mean(real, self, *given):
  most = self.hp.clip_norm / self.release.expected_cohort
  return clipped(real(self, *given), most)


def late_clip(patch):
  unclipped(patch)
  clipped_mean(patch)


@_patched(private_mean.PrivateMean, '_running_sum')
def denominator(real, self, finish):
  link = real(self, finish)

  def update(*given, comm, weight, **extra):
    mean, bill = link.update_fn(*given, comm=comm, weight=weight, **extra)
    count = comm.total(weight > 0)
    times = self.release.expected_cohort / jnp.maximum(count, 1)
    return jax.tree.map(lambda x: x * times, mean), bill

  return dataclasses.replace(link, update_fn=update)


BREAKS = (
  Break('half the variance of the noise', half, LAW, FOUND),
  Break('no clipping', unclipped, FOUND, LAW),
  Break('every array clipped to the norm of all', every_leaf, LAW, NOT, DENSE,
        'a canary of one run sends along one array'),
  Break('clipping after the noise', late_clip, FOUND, LAW),
  Break('noise from the public seed', public, FOUND, NOT, why='its law is '
        'right; in one run the guesser does not try that seed'),
  Break('the same noise in every round', same_round, FOUND, LAW),
  Break('noise equal over blocks of 8 numbers', blocks, FOUND, LAW),
  Break('noise repeated over arrays', same_leaves, FOUND, LAW, DENSE),
  Break('one array without noise', bare_leaf, FOUND, LAW, DENSE),
  Break("noise repeated over clients' shares, secure aggregation", same_share,
        LAW, LAW, MASKED),
  Break("noise repeated over clients' shares, local", same_share, NOT, NONE,
        {'trust': 'local'}, 'one client is played, whose noise is right'),
  Break('banded noise with a wrong weight', weight, LAW, NONE, BANDED),
  Break('banded noise reused in each epoch', same_epoch, FOUND, NONE, BANDED),
  Break('a denominator that follows the cohort', denominator, LAW, LAW,
        POISSON),
  Break('uniform noise of the right variance', uniform, LAW, LAW),
  Break('noise cut at three deviations', cut, LAW, NOT, why='one run has '
        'too few numbers'),
  Break('keys of 12 bits', few_keys, LAW, NOT, why='one run draws too few '
        'keys to draw one twice'),
  Break('streams of rounds two apart that overlap', two_apart, LAW, LAW),
  Break('no noise after the fourth round', four_rounds, FOUND, LAW,
        {'rounds': 6}),
  Break('signs of the noise that are equal in every round', signs, LAW, LAW),
  Break('less noise in a round than is stated', less_noise, LAW, FOUND),
  Break('no noise on the count of a quantile', bare_count, LAW, LAW, QUANTILE),
  Break('a sampler that takes everyone twice as often', often, NOT, BOUND,
        OFTEN, MANY),
  Break('a sampler that takes the same cohort in every round', same_cohort,
        NOT, NOT, OFTEN, f'{MANY}; one run counts the guesses of all '
        'canaries, of which two in three never take part'),
)  # fmt: skip


def table() -> list[str]:
  """The lines of the table in Markdown."""
  head = '| break | many runs | one run | why it is not found |'
  rows = [f'| {x.name} | {x.config} | {x.one_run} | {x.why} |' for x in BREAKS]
  return [head, '| --- | --- | --- | --- |', *rows]
