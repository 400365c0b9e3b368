"""Puts canary clients into the population of a config and into its rounds."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

from fl_sketch import algorithms, experiment, rounds
from fl_sketch.data import partitions
from fl_sketch.experiment import parts, privacy_plan, problem as problem_lib
from fl_sketch.experiment.config import Config
from fl_sketch.privacy.auditing import canaries as canaries_lib, canary_scores
from fl_sketch.privacy.mechanisms import private_mean, quantile_bound
from fl_sketch.rounds import chain, client_step, keys as keys_lib, mesh
from fl_sketch.rounds.algorithm import Algorithm, RoundLocal, StatefulLocal
from fl_sketch.utils import seeding
import jax
import jax.numpy as jnp
import numpy as np
import optax

_SHORT = 1e-3  # of an update that is not clipped, in clipping norms
_AT_ONCE = 50  # canaries whose payloads are computed together
_NOISE = 2**22  # numbers of noise that a run keeps

# (hp, state, cohort, signals, public key, noise key) -> (state, f32[canaries]:
# the release along the payload of each canary, in units of it; NaN where that
# is 0, and infinite if the broadcast is not finite; f32[numbers]: the noise of
# the release over its claimed deviation, of the first numbers)
Step = Callable[..., tuple[rounds.FedState, jax.Array, jax.Array]]


class Signals(NamedTuple):
  """The public update of each canary in a round, sent if its coin says so."""

  place: np.ndarray  # int32[canaries], the number of a payload to send along
  sign: np.ndarray  # f32[canaries], 1 or -1; 0 if it sends nothing


class _Hyper(NamedTuple):
  hp: algorithms.Hyper
  keys: keys_lib.RoundKeys  # public


def guarantee_of(exp: experiment.Experiment) -> privacy_plan.PrivacyGuarantee:
  """Returns the guarantee of a private experiment."""
  assert exp.guarantee is not None  # the config is private
  return exp.guarantee


def enlarged(c: Config, data_dir: str | None, canaries: int):
  """Builds the experiment of a config with canaries in its population.

  Their ids follow those of the config's clients, whose data they share. The
  cohort grows in proportion, so that a client takes part as often as before.
  """
  problem = problem_lib.load(c, data_dir)
  exp = experiment.build(c, data_dir, lambda _: problem)
  own, total = c.population, c.population + canaries
  grown = lambda x: None if x is None else max(1, round(x * total / own))
  cohort, epoch = grown(c.cohort), c.epoch_rounds
  if c.sampling == 'random_allocation':  # its epochs stay as long
    epoch, cohort = c.allocation_rounds, round(total / c.allocation_rounds)
  large = dataclasses.replace(
    c, population=total, cohort=cohort, epoch_rounds=epoch,
    max_cohort=grown(c.max_cohort), min_honest=grown(c.min_honest),
    # `build` has held it out.
    client_holdout=0.0, personal_steps=None, personal_lr=None,
  )  # fmt: skip
  p, clients = exp.partition, np.arange(total)
  clients[own:] = np.arange(canaries) % own
  sizes = p.sizes[clients]
  offsets = np.concatenate([[0], np.cumsum(sizes)])
  first = np.repeat(p.offsets[clients] - offsets[:-1], sizes)
  held = partitions.Partition(p.take(first + np.arange(offsets[-1])), offsets)
  return experiment.assemble(large, problem, held)


def signals(
  rng: np.random.Generator, number: int, canaries: int, size: int
) -> Signals:
  """Draws what canaries send in a round, each along a number of its own.

  Two along one number would hide one another, and their scores would depend on
  each other. Where there are more canaries than numbers they take turns. `rng`
  is independent of the keys of the run; a payload has `size` numbers.

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
  exp: experiment.Experiment,
  number: int,
  sampling_seed: seeding.Root,
  sent: Signals,
  coins: np.ndarray,
) -> rounds.Cohort:
  """Draws the cohort of a round, with what its canaries send.

  A canary that is left out, whose coin is False, is absent, sends 0, or sends
  the opposite, as the adjacency of the claim has it.
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
  make: rounds.Make, hp: Any, params: Any, cohort: rounds.Cohort, **fetched: Any
) -> list[int] | None:
  """Counts the numbers of each array of a client's payload.

  None if the server broadcasts other shapes; ``fetched`` are `fetch` of
  `rounds.cohort_step` and its `data`.
  """
  key, algorithm = jax.random.key(0), make(hp)
  data, cohort = fetched.pop('data', None), cohort._replace(outcome=None)

  def payload(key):
    keys = keys_lib.round_keys(key, jnp.int32(0))
    moved = _like_moved(algorithm, params)
    return client_step.encode_once(algorithm, moved, params, keys)

  step = rounds.cohort_step(make, mesh.cohort_mesh(), **fetched)
  state = parts.state_shapes(algorithm, params)
  sent = jax.eval_shape(step, hp, state, cohort, key, data, key)[0]
  leaves = jax.tree.leaves(jax.eval_shape(payload, key))
  of = lambda tree: [x.shape for x in jax.tree.leaves(tree)]
  sizes = [jax.eval_shape(canaries_lib.flat, x).size for x in leaves]
  return sizes if of(sent) == of(leaves) else None


def multiplier(release: private_mean.Release, z: Any, participants: Any) -> Any:
  """Returns the deviation of the noise of one sum, in clip norms.

  Of a release whose noise multiplier is z, f[], with so many participants.
  """
  if release.bound == 'quantile':
    assert release.count_stddev is not None  # `quantile_bound.uplink` checks
    z = (z**-2.0 - (2 * release.count_stddev) ** -2.0) ** -0.5
  if release.trust == 'central':
    return z
  return z * (participants / release.shares()[1]) ** 0.5


def program(exp: experiment.Experiment, own: int, known: bool) -> Step:
  """Builds the round of an experiment with canaries, and their scores.

  The round is the real one, but that the local work of canaries returns what
  they send. If it is known when the `own` clients of the config, whose ids come
  first, take part, the attacker subtracts what they send: the broadcast of a
  round of theirs without noise. The noise is what also the canaries' part,
  which the attacker does not know, is subtracted from.
  """
  release = privacy_plan.release_of(exp.config)
  assert release is not None  # clients are protected
  options = {'clients_per_step': exp.clients_per_step, 'skip_absent': True}

  def cohort_fn_of(trains):
    make = lambda g: _with_canaries(exp.make(g.hp), g, trains)
    return rounds.cohort_step(make, mesh.cohort_mesh(), **options)

  cohort_fn, canaries_fn = cohort_fn_of(True), cohort_fn_of(False)
  z, most = exp.hyper.noise_multiplier, max(_NOISE // exp.config.rounds, 1)
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
      return canaries_lib.flat(fn(quiet, state, some, *rest)[0])

    whole, is_own = canaries_lib.flat(broadcast), cohort.ids < own
    others = without_noise(cohort_fn, is_own)
    seen = whole - others if known else whole
    own_hp, expected = hp, release.expected_cohort  # of this round
    if release.bound == 'quantile':
      bound = chain.state_of(state.protocol, quantile_bound.QuantileState)
      own_hp = hp._replace(clip_norm=bound.clip_norm)
    scale = multiplier(release, z, (cohort.weight > 0).sum())
    scale = scale * own_hp.clip_norm / expected
    noise = whole - others - without_noise(canaries_fn, ~is_own)
    algorithm, params = exp.make(hp), state.params
    clipped = release.with_hyper(own_hp).clipped

    def project(sent):
      sign = jnp.where(sent.sign < 0, -1.0, 1.0)
      update = _update(algorithm, params, g, sent.place, sign)
      payload = client_step.encode_once(algorithm, update, params, g.keys)
      payload = canaries_lib.flat(clipped(payload))
      square = payload @ payload  # 0 where a sketch leaves a number of it empty
      share = (seen @ payload) / jnp.where(square > 0, square, jnp.nan)
      return expected * share

    along = jax.lax.map(project, Signals(*sent), batch_size=_AT_ONCE)
    along = jnp.where(client_step.all_finite(broadcast), along, jnp.inf)
    return server_fn(hp, broadcast, new, key), along, noise[:most] / scale

  return jax.jit(step, donate_argnums=1, compiler_options=canaries_lib.COMPILER)


def _with_canaries(algorithm: Algorithm, g: _Hyper, trains=True) -> Algorithm:
  """Has canaries return what they send, and others zeros unless it `trains`."""
  whole = algorithm.local
  is_wrapped = isinstance(whole, StatefulLocal | RoundLocal)
  work = whole.apply if is_wrapped else whole

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

  new: Any = whole._replace(apply=local) if is_wrapped else local
  return algorithm._replace(local=new)


def _like_moved(algorithm: Algorithm, params: Any) -> Any:
  template = algorithm.update_template
  return params if template is None else template(params)


def _update(algorithm: Algorithm, params: Any, g: _Hyper, place, sign) -> Any:
  """The update whose payload is along one of its numbers, beyond any bound."""
  # By the adjoint of the encoder: of an operator with orthogonal rows the
  # payload then is 0 elsewhere, of others nearly so.
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
