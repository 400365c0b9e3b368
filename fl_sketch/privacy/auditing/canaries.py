r"""Worst-case canaries in the real rounds, for `audit`.

Clients have the loss :math:`\langle w, x_i \rangle`, whose gradient is
:math:`x_i` at every w: so long for the canary that clipping acts, 0 for others.
An attacker sees every broadcast, the hash keys, C, z and q, but neither coins
nor noise keys, and scores runs by `canary_scores`. Every score is valid for any
algorithm, and strong where the broadcast is linear in the mean, which it is not
for sketched_sgd, fetchsgd and HEAPRIX. `noise_law` tests runs of zero data.
"""

from collections.abc import Iterator
import functools
from typing import NamedTuple

from fl_sketch import rounds, sketches
from fl_sketch.accounting import correlation as correlation_lib, types
from fl_sketch.privacy.auditing import canary_scores, noise_law
from fl_sketch.privacy.auditing.audit import Report, assess
from fl_sketch.privacy.mechanisms import clipping, private_mean, quantile_bound
from fl_sketch.rounds import chain, keys as keys_lib, mesh as mesh_lib
from fl_sketch.utils.types import Batch, Key, Params, Tree
import jax
import jax.numpy as jnp
import numpy as np

_CHUNK = 2**22  # numbers of all clients of the runs that are batched
# Compiles two to four times as fast, and runs as fast.
COMPILER = {'xla_backend_optimization_level': 1}
_ALONE, _WITH, _WITHOUT, _ZERO = range(4)
_SCORES = 'matched filter', 'learned filter'
_ZEROS = 1000  # runs of zero data
LENGTH = 1e4  # of the canary's update, in clipping norms


class Game(NamedTuple):
  """Two neighbouring worlds and the private rounds that hide which is real."""

  make: rounds.Make  # hp -> `Algorithm`, on the loss `inner_product`
  hp: rounds.Hyper  # hyperparameters of the rounds
  mechanism: types.GaussianMechanism  # the claim, with a population
  # f32[rounds, d], direction of its gradient; 0 in rounds known to be without
  # it. Random signs show noise that is equal in rounds or coordinates.
  canary: np.ndarray | jax.Array
  public: Key  # the run's
  steps_per_round: int = 1  # local steps where samples are protected
  # Deviation of each number of a broadcast of zero data, in units of a clipped
  # contribution; None: the broadcast is not noise alone, of known covariance.
  noise: float | None = None
  correlation: correlation_lib.Correlation | None = None  # over rounds
  release: private_mean.CentralRelease | None = None  # of central trust


def parameters(d: int) -> dict[str, jax.Array]:
  """Return the model of a game: d zeros in two leaves."""
  return {'first': jnp.zeros(d // 2), 'second': jnp.zeros(d - d // 2)}


def inner_product(params: Params, batch: Batch) -> jax.Array:
  """Return the mean of <w, x> over a batch whose 'x' is f32[batch, d]."""
  w = jnp.concatenate([params['first'], params['second']])
  return (batch['x'] @ w).mean()


def stretched(
  op: sketches.Sketch,
  public: Key,
  shape: tuple[int, int],
  hash_rounds: int | None,
) -> np.ndarray:
  """Return the unit vectors that a sketch stretches most: f32[rounds, d].

  Its hashes are drawn by the run's public key, as in `transforms.sketch`.
  """
  like = parameters(shape[1])

  def table(t, x):
    key = keys_lib.hash_key(keys_lib.round_keys(public, t), hash_rounds)
    parts = jnp.split(x, [like['first'].size])
    return flat(op.sketch(key, dict(zip(like, parts, strict=True))))

  every = jax.vmap(jax.vmap(table, (None, 0)), (0, None))
  columns = every(jnp.arange(shape[0]), jnp.eye(shape[1]))
  left = np.linalg.svd(np.asarray(columns, np.float64))[0]
  return left[:, :, 0].astype(np.float32)


def audit(
  game: Game,
  key: Key,
  *,
  samples: int = 5000,
  significance: float = 0.05,
  accountant: str = 'pld',
) -> Report:
  """Run a game in both worlds and bound epsilon by every score.

  There are `samples` runs in each world; the key draws noise and coins. Other
  arguments, and the guarantee, are those of `audit.assess`.
  """
  claimed = game.mechanism
  if not (z := claimed.noise_multiplier) > 0:
    raise ValueError(f'noise_multiplier={z} must be > 0 for an audit.')
  turns, d = game.canary.shape
  units = _units(claimed) * game.steps_per_round
  size = max(1, min(_CHUNK // (d * max(units, turns)), samples, _ZEROS))
  sent = [*_runs(game, np.full(min(samples, _ZEROS), _ZERO), size, key)]
  alone, noise = sent[0][0], np.concatenate([x[1:] for x in sent])
  weights, law = canary_scores.learned_filter(noise, alone), None
  if game.noise is not None:
    deviation = game.noise * np.linalg.norm(alone, axis=1).max()
    white = noise_law.whitened(noise, game.correlation) / deviation
    law = noise_law.evaluate(white)

  def scores_of(sent):
    matched = canary_scores.matched_filter(
      sent, alone, claimed, game.steps_per_round, game.correlation
    )
    return matched, np.einsum('itn,tn->i', sent, weights)

  worlds = np.repeat([_WITH, _WITHOUT], samples)
  runs = _runs(game, worlds, size, jax.random.fold_in(key, 1))
  scores = np.concatenate([scores_of(sent[1:]) for sent in runs], 1)
  scores = scores[:, : 2 * samples].reshape(-1, 2, samples)
  return assess(
    {name: (*pair,) for name, pair in zip(_SCORES, scores, strict=True)},
    claimed, significance=significance, accountant=accountant, law=law,
  )  # fmt: skip


def _runs(game: Game, kinds, size, key) -> Iterator[np.ndarray]:
  """Yield broadcasts of runs of all kinds: f32[1 + size, rounds, numbers]."""
  # The first of each part is the canary alone, in the one compiled program.
  kinds = np.pad(kinds, (0, -len(kinds) % size), mode='edge')
  arrays = {name: getattr(game, name) for name in ('hp', 'canary', 'public')}
  rules = game._replace(**dict.fromkeys(arrays))
  for number, part in enumerate(kinds.reshape(-1, size)):
    keys = jax.random.split(jax.random.fold_in(key, number), size + 1)
    yield np.asarray(_record(rules, arrays, keys, jnp.array([_ALONE, *part])))


@functools.partial(jax.jit, static_argnums=0, compiler_options=COMPILER)
def _record(rules, arrays, keys, kinds) -> jax.Array:
  game = rules._replace(**arrays)
  return jax.vmap(functools.partial(_broadcasts, game))(keys, kinds)


def _broadcasts(game: Game, key, kind) -> jax.Array:
  """Return what the real rounds of a run broadcast: f32[rounds, numbers]."""
  coins, secret = jax.random.split(key)
  cohorts, mechanism, hp = _cohorts(game, coins, kind), game.mechanism, game.hp
  z = jnp.where(kind == _ALONE, 0.0, jnp.asarray(hp.noise_multiplier))
  hp = hp._replace(noise_multiplier=z)
  scale = LENGTH * jnp.asarray(hp.clip_norm) / jnp.minimum(hp.client_lr, 1)

  def fetch(x, batch):
    rest = {k: v for k, v in batch.items() if k != 'sign'}
    return rest | {'x': batch['sign'][:, :, None] * (scale * x)[None, None]}

  cohort_fn = rounds.cohort_step(
    game.make, mesh_lib.cohort_mesh(1), fetch=fetch, clients_per_step=None
  )
  server_fn = rounds.server_step(game.make)

  def step(state, inputs):
    cohort, x = inputs
    sent, after, _ = cohort_fn(hp, state, cohort, game.public, x, secret)
    numbers = flat(sent)
    if game.release and game.release.bound == 'quantile':
      numbers = _by_bound(game, kind, cohort, state, after, numbers)
    return server_fn(hp, sent, after, game.public), numbers

  x = jnp.asarray(game.canary, jnp.float32)
  clients = 1 if mechanism.unit == 'sample' else _population(mechanism)
  state = rounds.init(game.make(hp), parameters(x.shape[1]), clients)
  return jax.lax.scan(step, state, (cohorts, x))[1]


def _by_bound(game: Game, kind, cohort, state, after, numbers) -> jax.Array:
  """Undo the scale of an announced bound; append the noise of its count."""
  release, first = game.release, game.hp.clip_norm
  assert release is not None
  assert first is not None
  assert release.count_stddev is not None  # as the release checks
  # The count of zero data is known, and its noise made as large as the sum's.
  count = quantile_bound.announced_count(release, state, after)
  noise = (count - 0.5 * cohort.weight.sum()) / release.count_stddev
  noise *= (game.noise or 0) * first / release.expected_cohort
  bound = chain.state_of(state, quantile_bound.QuantileState).clip_norm
  return jnp.append(numbers * (first / bound), noise * (kind == _ZERO))


def _cohorts(game: Game, coins, kind) -> rounds.Cohort:
  """Draw all rounds' cohorts, [rounds, ...]; the last unit is the canary."""
  mechanism, k = game.mechanism, game.steps_per_round
  turns, n = len(game.canary), _population(mechanism)
  ids, mask = _draws(mechanism, coins, turns * k)
  first = jnp.arange(ids.shape[1])[None] == 0
  ids = jnp.where(kind == _ALONE, jnp.where(first, n - 1, n), ids)
  away, replacement = canary_scores.absence(mechanism)
  is_canary, absent = ids == n - 1, (kind == _WITHOUT) & away
  present = jnp.where(is_canary & absent, 0, mask)
  mask = jnp.where(kind == _ALONE, 1.0 * is_canary, present)
  canary = jnp.where(kind == _WITHOUT, replacement, 1.0)
  sign = jnp.where(is_canary, canary, 0.0) * (kind != _ZERO)
  if mechanism.unit == 'client':
    return rounds.Cohort(ids, mask, {'sign': sign[:, :, None, None]})
  fold = lambda x: x.reshape(turns, 1, k, -1)
  batches = {'sign': fold(sign), 'mask': fold(mask)}
  ids = jnp.zeros((turns, 1), jnp.int32)
  return rounds.Cohort(ids, jnp.ones((turns, 1)), batches)


def _draws(mechanism, coins, steps):
  """Draw ids and weights [steps, units]; all coins of an epoch at once."""
  n, size, t = _population(mechanism), _units(mechanism), mechanism.epoch_steps
  if mechanism.sampling is types.Sampling.RANDOM_ALLOCATION:
    step = np.arange(steps)
    places = jax.random.randint(coins, (steps // t + 1, n), 0, t)
    taken = places[step // t] == (step % t)[:, None]
    return jnp.where(taken, jnp.arange(n)[None], n), taken.astype(jnp.float32)

  def draw(key):
    if mechanism.sampling is types.Sampling.FULL:
      return jnp.arange(n, dtype=jnp.int32), jnp.ones(n)
    if mechanism.sampling is types.Sampling.FIXED_WITHOUT_REPLACEMENT:
      return fixed_size_sample(key, n, size)
    return poisson_sample(key, n, mechanism.sampling_probability, size)

  return jax.vmap(draw)(jax.random.split(coins, steps))


def poisson_sample(
  key: Key, population: int, probability: jax.Array | float, max_cohort: int
) -> tuple[jax.Array, jax.Array]:
  """Sample each client independently: ids int32[max_cohort], a mask f32.

  The id of an empty slot is `population`. A larger cohort is cut to a uniformly
  random subset.
  """
  coins, order = jax.random.split(key)
  # The default mode rounds small probabilities up to 23 bits.
  taken = jax.random.bernoulli(coins, probability, (population,), mode='high')
  # Those taken come first, in random order.
  rank = jnp.where(taken, jax.random.uniform(order, (population,)), 2)
  ids = jnp.argsort(rank)[:max_cohort].astype(jnp.int32)
  mask = taken[ids]
  return jnp.where(mask, ids, population), mask.astype(jnp.float32)


def fixed_size_sample(
  key: Key, population: int, cohort: int
) -> tuple[jax.Array, jax.Array]:
  """Sample distinct clients uniformly: ids int32[cohort], a mask of ones."""
  ids = jax.random.permutation(key, population)[:cohort].astype(jnp.int32)
  return ids, jnp.ones(cohort)


def _units(mechanism) -> int:
  if mechanism.sampling is types.Sampling.RANDOM_ALLOCATION:
    return _population(mechanism)  # none is cut off
  return mechanism.max_cohort or _population(mechanism)


def _population(mechanism) -> int:
  assert mechanism.population is not None  # of a `Game`
  return mechanism.population


def flat(tree: Tree) -> jax.Array:
  """Concatenate all real numbers of a broadcast."""
  is_real = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
  real = filter(is_real, clipping.parts(tree))
  return jnp.concatenate([x.ravel() for x in real])
