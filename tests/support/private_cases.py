"""Private rounds of prescribed updates; tests have false alarms below 1e-6."""

import functools

import cases
from fl_sketch import algorithms, rounds, sketches
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import keys as keys_lib, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

C, Z, R = 0.5, 2.0, 4.0
LANES = 6
SECRET = jax.random.key(99)
RELEASE = private_mean.CentralRelease(R)
HP = algorithms.Hyper(
  jnp.float32(1), jnp.float32(1), clip_norm=jnp.float32(C),
  noise_multiplier=jnp.float32(Z),
)  # fmt: skip
QUIET = HP._replace(noise_multiplier=jnp.float32(0))
SEND = lambda hp: lambda params, batches, key, correction: (batches, {})

OPTIONS = {
  'dp_fedavg': {},
  'dp_normfedavg': {},
  'iterative_sketching': {'sketch': cases.MEAN},
  'safl': {'sketch': cases.CYCLIC},
  'fedsketch_privix': {'sketch': cases.COUNT},
  'heaprix_literal': {'sketch': cases.COUNT, 'k': 3, 'exact': False},
  'fedsketchgate': {'sketch': cases.COUNT, 'local_steps': 1},
  'fetchsgd': {'sketch': cases.COUNT, 'k': 2, 'momentum_masking': False},
  'heaprix_exact': {'sketch': cases.COUNT, 'k': 3},
  'gate_heaprix': {'sketch': cases.COUNT, 'k': 3, 'local_steps': 1},
  'sketched_sgd': {'sketch': cases.COUNT, 'k': cases.DIMENSION},
}  # fmt: skip
NAMES = {
  'heaprix_literal': 'fedsketch_heaprix',
  'heaprix_exact': 'fedsketch_heaprix',
  'gate_heaprix': 'fedsketchgate',
  'before_cyclic': 'iterative_sketching',
  'before_gaussian': 'iterative_sketching',
}
OPTIONS_BEFORE = {
  'before_cyclic': {'sketch': cases.CYCLIC},
  'before_gaussian': {'sketch': sketches.gaussian(4)},
}
TWICE = ('heaprix_exact', 'gate_heaprix', 'sketched_sgd')
ONCE = tuple(name for name in OPTIONS if name not in TWICE)
# They share their links with others.
SLOW = (
  'dp_normfedavg', 'iterative_sketching', 'heaprix_literal', 'gate_heaprix',
  'fedsketchgate', 'fedsketch_privix', 'sketched_sgd', 'fetchsgd',
)  # fmt: skip


by_name = lambda names, long=SLOW: cases.by_name(names, long)
each = by_name(OPTIONS)
TRACES = []


@functools.cache
def make(name, release):
  return algorithms.make(
    NAMES.get(name, name),
    local=SEND,
    privacy=release,
    **(OPTIONS | OPTIONS_BEFORE)[name],
  )


def released(name, message, state):
  """The public values of a round, one vector for each of its releases."""
  if name == 'fetchsgd':  # U, before the momentum of a second round
    message = rounds.state_of(state.protocol, 'momentum')
  if name in ('heaprix_exact', 'gate_heaprix'):
    return [message.table.ravel(), vector((message.exact, message.fresh))]
  if name == 'sketched_sgd':
    return [message.values]
  return [vector(message)]


def vector(tree):
  return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])


@functools.cache
def program(name, release, shards, lanes=0):
  """(hp, state, cohort, key, noise_key) -> releases of one round."""
  mesh = mesh_lib.cohort_mesh(shards)
  step = rounds.cohort_step(make(name, release), mesh, clients_per_step=lanes)

  def one(hp, state, cohort, key, noise_key):
    TRACES.append(name)
    message, state, _ = step(hp, state, cohort, key, None, noise_key)
    return released(name, message, state)

  return cases.jit(one), cases.jit(jax.vmap(one, (None,) * 4 + (0,)))


def state_of(name, release=RELEASE, hp=HP):
  return rounds.init(make(name, release)(hp), cases.PARAMS, LANES)


def broadcast(name, sent, *, hp=HP, release=RELEASE, shards=1, lanes=0, **keys):
  """The releases of a round; keys are its public `key` and the `secret`."""
  keys = keys.get('key', cases.KEY), keys.get('secret', SECRET)
  run = program(name, release, shards, lanes)[0]
  return [*map(np.asarray, run(hp, state_of(name, release), sent, *keys))]


def draws(name, sent, count=3000, *, release=RELEASE, hp=HP, key=cases.KEY):
  """Releases under many secrets, leaves [count, numbers]."""
  secrets = jax.random.split(SECRET, count)
  run = program(name, release, 1)[1]
  releases = run(hp, state_of(name, release), sent, key, secrets)
  return [np.asarray(x, 'f8') for x in releases]


def cohort(weight, scale=1.0, seed=0):
  """Clients with updates of size about `scale`, and these weights."""
  rng = np.random.default_rng(seed)
  draw = lambda x: rng.normal(size=(LANES, *x.shape)).astype('f4') * scale
  updates = jax.tree.map(draw, cases.PARAMS)
  return rounds.Cohort(
    np.arange(LANES, dtype='i4'), np.float32(weight), updates
  )


def with_client(sent, i, update):
  """The cohort whose client i sends f32[DIMENSION], and takes part."""
  update = np.float32(update)
  change = jax.tree.map(np.array, sent.batches)
  change['b'][i], change['w'][i] = update[:2], update[2:].reshape(4, 2)
  weight = np.array(sent.weight)
  weight[i] = 1
  return sent._replace(batches=change, weight=weight)


PADDING_ID = cohort([0] * LANES)
SOME = cohort([0, 1, 1, 0, 1, 0])
EVERYONE = cohort([1] * LANES)
SILENT = EVERYONE._replace(batches=jax.tree.map(np.zeros_like, SOME.batches))


def has_stddev(x, stddev):
  square = np.sum(np.square(np.float64(x).ravel() / stddev))
  low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], x.size)
  return low < square < high


def uncorrelated(x, y):
  x, y = np.ravel(x), np.ravel(y)
  return abs(np.corrcoef(x, y)[0, 1]) * x.size**0.5 < 5.5


@functools.cache
def adversaries():
  """Updates that are long, or long once they are sketched."""
  updates = [np.full(10, 3e37), np.eye(10)[7] * 1e-3, np.zeros(10)]
  keys = keys_lib.round_keys(cases.KEY, 0)
  basis = {'b': np.eye(10)[:, :2], 'w': np.eye(10)[:, 2:].reshape(10, 4, 2)}
  basis = jax.tree.map(np.float32, basis)
  for op in cases.COUNT, cases.CYCLIC:
    for key in keys.round, keys.run:
      r = jax.jit(jax.vmap(op.sketch, (None, 0)))(key, basis)
      r = np.asarray(r).reshape(10, -1).T
      updates.append(1e3 * np.linalg.svd(r)[2][0])
      updates.append(10 * r[np.abs(r).sum(1).argmax()])
  return updates
