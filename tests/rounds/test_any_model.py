"""Any model of JAX trains: a round is a plain loop over clients."""

import functools
from typing import Any, NamedTuple

import any_models
import chex
from fl_sketch import algorithms, local, models, rounds
from fl_sketch.rounds import aggregation, keys as keys_lib, transforms as t
from fl_sketch.rounds.algorithm import federated
import jax
import jax.numpy as jnp
import laws
from laws import jit
import numpy as np
import optax
import pytest

ROUNDS, CLIENTS, POPULATION, STEPS, BATCH = 2, 5, 7, 2, 3
HP = algorithms.Hyper(*map(jnp.float32, (0.3, 1.0, 0.5, 0.4)))
KEY, SECRET = jax.random.key(1), jax.random.key(2)
DECAY = 0.5
FAMILIES = {f'family {k}': v for k, v in any_models.FAMILIES.items()}
EVERY = {**any_models.CASES, **FAMILIES}


class Way(NamedTuple):
  """A kind of algorithm, and how the engine plays its rounds."""

  structure: str = 'summed'
  shards: int = 2
  clients_per_step: int | None = 1
  skip_absent: bool = False


WAYS = {
  'on one device': Way(shards=1),
  'on two': Way(),
  'in chunks': Way(clients_per_step=2),
  'at once': Way(clients_per_step=None),
  'without absent': Way(skip_absent=True),
  'chunks without absent': Way(clients_per_step=2, skip_absent=True),
  'rows': Way('rows'),
  'gradient': Way('gradient'),
  'private': Way('private'),
}


def local_work(structure, loss_fn, hp):
  if structure == 'gradient':
    return local.gradient(loss_fn)
  if structure == 'private':
    numbers = hp.client_lr, hp.clip_norm, hp.noise_multiplier
    return local.private_sgd(loss_fn, *numbers, expected_batch=2, microbatch=2)
  return local.sgd(loss_fn, hp.client_lr)


def make_of(structure, loss_fn):
  """The algorithm: the server takes the mean of what clients send."""
  uplink = aggregation.mean_over_cohort()
  links = [uplink]
  if structure == 'rows':
    links = [t.per_client(optax.trace(DECAY)), uplink]

  def make(hp):
    work = local_work(structure, loss_fn, hp)
    algorithm = federated(work, *links, t.broadcast(), optax.scale(-1.0))
    return algorithm._replace(releases=STEPS * (structure == 'private'))

  return make


def cohort(case, r):
  """Five clients with weights 0 to 4; some samples are masked."""
  rng = np.random.default_rng(r)
  shape = CLIENTS, STEPS, BATCH
  batches = EVERY[case].arrays(rng, shape)
  batches['mask'] = np.arange(BATCH) < rng.integers(1, BATCH + 1, shape)
  ids = rng.permutation(POPULATION)[:CLIENTS].astype(np.int32)
  return rounds.Cohort(ids, np.arange(CLIENTS, dtype=np.float32), batches)


@functools.cache
def start(case):
  return any_models.start(EVERY[case])


@functools.cache
def twin(case, structure):
  """Parameters and last loss of a loop over clients."""
  params, loss_fn, _ = start(case)
  work = jit(local_work(structure, loss_fn, HP))
  rows: dict[int, Any] = {}
  private, loss = structure == 'private', 0.0
  for r in range(ROUNDS):
    ids, weight, batches, *_ = cohort(case, r)
    roots = keys_lib.round_keys(KEY, r)
    roots = keys_lib.noise_keys(SECRET, r) if private else roots
    weight = np.sign(weight) if private else weight
    sent, losses = [], []
    for i, client in enumerate(ids):
      if not weight[i]:
        continue
      key = keys_lib.local_key(keys_lib.for_client(roots, client))
      own = jax.tree.map(lambda x, i=i: x[i], batches)
      moved, metrics = work(params, own, key, None)
      if structure == 'rows' and client in rows:
        add = lambda new, old: new + DECAY * old
        moved = jax.tree.map(add, moved, rows[client])
      rows[client] = moved
      sent.append(moved)
      losses.append(metrics['train_loss'])
    mean = functools.partial(np.average, axis=0, weights=weight[weight > 0])
    moved = jax.tree.map(lambda *xs, mean=mean: mean(xs), *sent)
    params = jax.tree.map(jnp.subtract, params, moved)
    loss = mean(losses)
  return params, loss


def play(case, way, rounds_played=ROUNDS):
  """Parameters and last loss of the engine."""
  structure, shards, clients_per_step, skip = way
  params, loss_fn, _ = start(case)
  make, mesh = make_of(structure, loss_fn), rounds.cohort_mesh(shards)
  round_fn = rounds.run_round(
    make, mesh, clients_per_step=clients_per_step, skip_absent=skip
  )
  rest = KEY, None, SECRET if structure == 'private' else None
  state, metrics = rounds.init(make(HP), params, POPULATION), {}
  round_fn = jit(round_fn)
  for r in range(rounds_played):
    state, metrics = round_fn(HP, state, cohort(case, r), *rest)
  return state.params, metrics['train_loss']


def law(second, fast):
  names = [f'{case} {name}' for case in any_models.CASES for name in second]
  split = lambda name: tuple(name.split(' ', 1))
  return laws.law(names, fast, 'case', split, 'any model', smoke=fast)


def check(got, want):
  chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-5)


@law(WAYS, fast=['dict rows', 'fori_loop without absent'])
def test_a_round_is_a_loop_over_clients(case):
  """Catches a refusal of recurrent models, and a key that repeats."""
  name, way = case
  check(play(name, WAYS[way]), twin(name, WAYS[way].structure))


@pytest.mark.smoke
@pytest.mark.representatives('family linear')
@pytest.mark.parametrize('case', FAMILIES)
def test_every_family_of_models_trains(case):
  """Catches a derivative that a version of JAX cannot trace in shard_map."""
  params, loss = play(case, WAYS['gradient'], 1)
  away = optax.tree.norm(optax.tree.sub(params, start(case)[0]))
  assert 1e-3 < away < np.inf
  assert np.isfinite(loss)


def test_each_module_with_models_is_a_family():
  """Catches a new module of models that no smoke test trains."""
  made = [models.REGISTRY.entry(name).factory for name in models.names()]
  modules = {getattr(x, 'func', x).__module__ for x in made}
  own = {x for x in modules if x.startswith('fl_sketch.')}  # a study's apart
  assert {type(x.model).__module__ for x in FAMILIES.values()} == own


@pytest.mark.representatives('nnx')
@pytest.mark.parametrize('case', any_models.CASES)
def test_evaluation_is_a_loop_over_batches(case):
  """Catches dropout in evaluation, and masked samples or tokens that count."""
  params, _, metrics_fn = start(case)
  batches = jax.tree.map(lambda x: x[:, 0][:4], cohort(case, 0).batches)
  each = [jax.tree.map(lambda x, i=i: x[i], batches) for i in range(4)]
  sums = [jit(metrics_fn)(params, batch) for batch in each]
  want = jax.tree.map(lambda *xs: np.sum(xs), *sums)
  mesh = rounds.cohort_mesh(2)
  got = jit(rounds.run_evaluation(metrics_fn, mesh))(params, batches)
  chex.assert_trees_all_close(got, want, rtol=1e-5)
  owners = np.broadcast_to(np.arange(4)[:, None], (4, BATCH))
  fn = rounds.run_client_evaluation(metrics_fn, mesh, 4)
  by_client = jit(fn)(params, batches, owners)
  stacked = jax.tree.map(lambda *xs: np.stack(xs), *sums)
  chex.assert_trees_all_close(by_client, stacked, rtol=1e-5)
