"""Canary clients in the population of a config and in its rounds."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch import algorithms, rounds
from fl_sketch.data import partitions
from fl_sketch.privacy.auditing import canaries as canaries_lib, canary_scores
from fl_sketch.privacy.mechanisms import private_mean, quantile_bound
from fl_sketch.rounds import chain, client_step, keys as keys_lib, mesh
from fl_sketch.rounds.algorithm import Algorithm, RoundLocal, StatefulLocal
from fl_sketch.runs import experiment, privacy_plan, problem as problem_lib
from fl_sketch.runs.build import Experiment, assemble, build
from fl_sketch.runs.config import Config
from fl_sketch.utils import seeding
from fl_sketch.utils.types import Batch, Params, Tree
import jax
import jax.numpy as jnp
import numpy as np
import optax

_SHORT = 1e-3  # norm of an update that is not clipped, in clipping norms
_AT_ONCE = 50  # canaries whose payloads are computed together
_NOISE = 2**22  # numbers of noise that a run records

# (hp, state, cohort, signals, public key, noise key) -> (state, f32[canaries]:
# the release along each canary's payload, in units of it; NaN where that is 0,
# infinite if the broadcast is not; f32[numbers]: noise over its deviation)
Step = Callable[..., tuple[rounds.FedState, jax.Array, jax.Array]]


class Signals(NamedTuple):
  """The public update of each canary in a round, sent if its coin says so."""

  place: np.ndarray  # int32[canaries], a number of the payload
  sign: np.ndarray  # f32[canaries], 1 or -1; 0 if it sends nothing


class _Hyper(NamedTuple):
  """The hyperparameters of a round with canaries."""

  hp: algorithms.Hyper
  keys: keys_lib.RoundKeys  # public


def guarantee_of(exp: Experiment) -> privacy_plan.PrivacyGuarantee:
  """Return the guarantee of a private experiment."""
  assert exp.guarantee is not None  # the config is private
  return exp.guarantee


def enlarged(config: Config, data_dir: str | None, canaries: int) -> Experiment:
  """Build the experiment of a config with canaries in its population.

  Their ids follow those of the config's clients, whose data they share. The
  cohort grows in proportion.
  """
  problem = problem_lib.load(config, data_dir)
  exp = build(config, data_dir, lambda _: problem)
  others, total = config.population, config.population + canaries
  grown = lambda x: None if x is None else max(1, round(x * total / others))
  cohort, epoch = grown(config.cohort), config.epoch_rounds
  if config.sampling == 'random_allocation':  # its epochs stay as long
    epoch = config.allocation_rounds
    cohort = round(total / epoch)
  large = dataclasses.replace(
    config, population=total, cohort=cohort, epoch_rounds=epoch,
    max_cohort=grown(config.max_cohort), min_honest=grown(config.min_honest),
    # `build` has held these clients out.
    client_holdout=0.0, personal_steps=None, personal_lr=None,
  )  # fmt: skip
  clients = [*range(others), *(np.arange(canaries) % others)]
  samples = [exp.partition.client(i) for i in clients]
  offsets = np.cumsum([0, *map(len, samples)])
  partition = partitions.Partition(np.concatenate(samples), offsets)
  return assemble(large, problem, partition)


def signals(
  rng: np.random.Generator, number: int, canaries: int, size: int
) -> Signals:
  """Draw what canaries send in a round, each along a number of its own.

  More canaries than the `size` numbers of a payload take turns. `rng` is
  independent of the keys of the run.

  >>> sent = signals(np.random.default_rng(0), 1, canaries=5, size=3)
  >>> sorted(sent.place.tolist()), np.abs(sent.sign).tolist()
  ([0, 0, 0, 1, 2], [1.0, 0.0, 0.0, 1.0, 1.0])
  """
  turn = (number * size + np.arange(min(canaries, size))) % canaries
  place, sign = np.zeros(canaries, np.int32), np.zeros(canaries, np.float32)
  place[turn] = rng.choice(size, len(turn), replace=False)
  sign[turn] = rng.choice([-1, 1], len(turn))
  return Signals(place, sign)


def cohort_of(
  exp: Experiment,
  number: int,
  sampling_seed: seeding.Root,
  sent: Signals,
  coins: np.ndarray,
) -> rounds.Cohort:
  """Draw the cohort of a round, with what its canaries send.

  A canary whose coin is False is absent, sends 0, or sends the opposite, by the
  adjacency of the claim.
  """
  leaves, left_out = canary_scores.absence(guarantee_of(exp).mechanism)
  cohort = exp.sample(number, sampling_seed)
  canary = np.asarray(cohort.ids) - (exp.config.population - len(coins))
  is_canary = (canary >= 0) & (canary < len(coins))
  canary = np.where(is_canary, canary, 0)
  times = np.where(coins, 1, left_out).astype(np.float32)
  away = leaves & is_canary & ~coins[canary]
  weight = np.where(away, np.float32(0), cohort.weight)
  batches = {
    'data': exp.fetch(exp.data, cohort.batches),
    'place': np.where(is_canary, sent.place[canary], -1).astype(np.int32),
    'sign': sent.sign[canary] * times[canary],
  }
  return cohort._replace(weight=weight, batches=batches, outcome=None)


def payload_sizes(
  make: rounds.Make,
  hp: rounds.Hyper,
  params: Params,
  cohort: rounds.Cohort,
  fetch: Callable[..., Batch] | None = None,
  data: Tree = None,
) -> list[int] | None:
  """Return the sizes of a payload; None if the broadcast has other shapes."""
  key, algorithm = jax.random.key(0), make(hp)
  cohort = cohort._replace(outcome=None)

  def payload(key):
    keys = keys_lib.round_keys(key, jnp.int32(0))
    moved = _like_moved(algorithm, params)
    return client_step.encode_once(algorithm, moved, params, keys)

  step = rounds.cohort_step(make, mesh.cohort_mesh(), fetch=fetch)
  state = experiment.state_shapes(algorithm, params)
  sent = jax.eval_shape(step, hp, state, cohort, key, data, key)[0]
  leaves = jax.tree.leaves(jax.eval_shape(payload, key))
  shapes = [x.shape for x in leaves]
  if [x.shape for x in jax.tree.leaves(sent)] != shapes:
    return None
  return [jax.eval_shape(canaries_lib.flat, x).size for x in leaves]


def multiplier(
  release: private_mean.Release, z: Any, participants: jax.Array | int
) -> Any:
  """Return the deviation of the noise of one sum, in clip norms, as z: f[]."""
  if not isinstance(release, private_mean.CentralRelease):
    return z * (participants / release.shares()[1]) ** 0.5
  if release.bound != 'quantile':
    return z
  assert release.count_stddev is not None  # the release checks
  return (z**-2.0 - (2 * release.count_stddev) ** -2.0) ** -0.5


def program(exp: Experiment, others: int, known: bool) -> Step:
  """Build the round of an experiment with canaries, and their scores.

  The local work of canaries returns what they send. The first `others` ids are
  the config's clients. If it is `known` when these take part, the attacker
  subtracts their part: the broadcast without canaries and noise. The noise is
  the broadcast without both parts.
  """
  release = privacy_plan.release_of(exp.config)
  assert release is not None  # clients are protected
  options = {'clients_per_step': exp.clients_per_step, 'skip_absent': True}

  def cohort_fn_of(trains):
    make = lambda g: _with_canaries(exp.make(g.hp), g, trains)
    return rounds.cohort_step(make, mesh.cohort_mesh(), **options)

  cohort_fn, canaries_fn = cohort_fn_of(True), cohort_fn_of(False)
  z = privacy_plan.multiplier_of_updates(exp.config, guarantee_of(exp))
  most = max(_NOISE // exp.config.rounds, 1)
  is_central = isinstance(release, private_mean.CentralRelease)
  spread = release.count_stddev if is_central else None
  server_fn = rounds.server_step(exp.make)

  def step(hp, state, cohort, sent, key, noise_key):
    if exp.schedule is not None:
      hp = exp.schedule(hp, state.round)
    g = _Hyper(hp, keys_lib.round_keys(key, state.round))
    rest = key, None, noise_key
    broadcast, new, _ = cohort_fn(g, state, cohort, *rest)
    quiet = g._replace(hp=hp._replace(noise_multiplier=jnp.float32(0)))

    def without_noise(fn, which):
      some = cohort._replace(weight=jnp.where(which, cohort.weight, 0))
      sent, after, _ = fn(quiet, state, some, *rest)
      return canaries_lib.flat(sent), after

    whole, is_other = canaries_lib.flat(broadcast), cohort.ids < others
    part, after_part = without_noise(cohort_fn, is_other)
    of_canaries, after_canaries = without_noise(canaries_fn, ~is_other)
    seen = whole - part if known else whole
    round_hp, expected = hp, release.expected_cohort
    if release.bound == 'quantile':
      bound = chain.state_of(state, quantile_bound.QuantileState)
      round_hp = hp._replace(clip_norm=bound.clip_norm)
    scale = multiplier(release, z, (cohort.weight > 0).sum())
    scale = scale * round_hp.clip_norm / expected
    noise = ((whole - part - of_canaries) / scale)[:most]
    if spread is not None:  # of a count, whose noise is in all three
      of = functools.partial(quantile_bound.announced_count, release, state)
      count = of(after_part) + of(after_canaries) - of(new)
      noise = jnp.append(noise, count / spread)
    algorithm, params = exp.make(hp), state.params
    clipped = release.with_hyper(round_hp).clipped

    def project(sent):
      sign = jnp.where(sent.sign < 0, -1.0, 1.0)
      update = _update(algorithm, params, g, sent.place, sign)
      payload = client_step.encode_once(algorithm, update, params, g.keys)
      payload = canaries_lib.flat(clipped(payload))
      square = payload @ payload  # 0 where a sketch leaves this number empty
      share = (seen @ payload) / jnp.where(square > 0, square, jnp.nan)
      return expected * share

    along = jax.lax.map(project, Signals(*sent), batch_size=_AT_ONCE)
    along = jnp.where(client_step.all_finite(broadcast), along, jnp.inf)
    return server_fn(hp, broadcast, new, key), along, noise

  return jax.jit(step, donate_argnums=1, compiler_options=canaries_lib.COMPILER)


def _with_canaries(algorithm: Algorithm, g: _Hyper, trains=True) -> Algorithm:
  """Make canaries return what they send; others return 0 unless `trains`."""
  wrapped = algorithm.local
  is_wrapped = isinstance(wrapped, StatefulLocal | RoundLocal)
  work = wrapped.apply if is_wrapped else wrapped

  def local(params, batches, *rest):
    arguments = params, batches['data'], *rest
    if trains:
      moved, *others = work(*arguments)
    else:
      zeros = lambda x: jnp.zeros(x.shape, x.dtype)
      moved, *others = jax.tree.map(zeros, jax.eval_shape(work, *arguments))
    is_canary = batches['place'] >= 0
    pick = lambda x, y: jnp.where(is_canary, x.astype(y.dtype), y)
    sent = _update(algorithm, params, g, batches['place'], batches['sign'])
    return jax.tree.map(pick, sent, moved), *others

  new: Any = wrapped._replace(apply=local) if is_wrapped else local
  return algorithm._replace(local=new)


def _like_moved(algorithm: Algorithm, params: Params) -> Tree:
  template = algorithm.update_template
  return params if template is None else template(params)


def _update(
  algorithm: Algorithm, params: Params, g: _Hyper, place, sign
) -> Tree:
  """Return an update whose payload is along one number, beyond any bound."""
  # It is the adjoint of the encoder at that number: for an operator with
  # orthogonal rows the payload is 0 elsewhere, for others nearly so.
  hp, like = g.hp, _like_moved(algorithm, params)
  assert hp.clip_norm is not None  # the config is private
  unit = hp.clip_norm * jnp.minimum(hp.client_lr, 1)
  inside = _SHORT * unit / optax.tree.size(like) ** 0.5
  point = jax.tree.map(lambda x: jnp.full(x.shape, inside, x.dtype), like)

  encode = lambda x: client_step.encode_once(algorithm, x, params, g.keys)
  payload, adjoint = jax.vjp(lambda x: canaries_lib.flat(encode(x)), point)
  (update,) = adjoint(jnp.zeros_like(payload).at[place].set(1))
  norm = optax.tree.norm(update)
  scale = sign * canaries_lib.LENGTH * unit / jnp.where(norm > 0, norm, 1)
  return jax.tree.map(lambda x: x * scale, update)
