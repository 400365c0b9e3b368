"""The conformance list of algorithms: the tiers of its laws, and its rounds."""

from collections.abc import Callable, Collection, Iterable
import functools
from typing import Any

from algorithm_list import (  # noqa: F401
  ALGORITHMS,
  COUNT,
  CYCLIC,
  DENSE,
  DIMENSION,
  EVERY,
  HP,
  KEY,
  MEAN,
  PARAMS,
  POPULATION,
  RANDOM,
  RELEASE,
  SCALE,
  SECRET,
  TOP,
  loss_fn,
  params_of,
)
from fl_sketch import rounds
from fl_sketch.rounds import mesh as mesh_lib
import jax
import laws
from laws import jit
import numpy as np

# A case for each way in which the engine treats an algorithm: its laws are fast
# for these, and nightly for all others.
STRUCTURES = {
  'safl_adam': 'a sum of payloads as they come',
  'safl_int8': 'payloads that are decoded first',
  'feedback_top_k': 'state of clients in the encoder',
  'fedavg_adamw_kept': 'state of clients in local work',
  'scaffold': 'state of clients in the protocol, which local work reads',
  'fedsketchgate_heaprix': 'two uplinks',
  'marina': 'a branch that differs from round to round',
  'onebit_adam': 'phases',
  'decentralised_gossip': 'an exchange without a server',
  'dp_fedavg': 'noise by the server',
  'dp_fedavg_masked': 'masked tables and noise by the clients',
  'private_iterative_sketching': 'noise in every local step',
  'decomfl': 'local work that draws what all clients share',
}
# Of these, the fast ones of laws over whole rounds; others share their parts.
FAST = (
  'safl_adam', 'feedback_top_k', 'fedavg_adamw_kept', 'scaffold', 'marina',
  'dp_fedavg', 'private_iterative_sketching',
)  # fmt: skip
# Private cases whose parts others have as well, in the long tier.
LONG = (
  'dp_fedavg_per_leaf', 'dp_fedavg_local', 'private_song', 'private_safl',
  'private_privix', 'private_heaprix', 'private_literal', 'private_gate',
  'private_gate_heaprix', 'private_sketched_sgd', 'dp_fedavg_quantile',
  'private_safl_int8', 'dp_fedavg_banded', 'private_banded_run',
  'private_fetchsgd_banded',
)  # fmt: skip
# One case of each, for laws that its options have no part in.
FIRST = {case.name: case for case in reversed(ALGORITHMS.values())}
ONE_EACH = [
  name
  for name, case in ALGORITHMS.items()
  if case is FIRST[case.name] or name in STRUCTURES
]


def law(names: Iterable[str], *, fast: Collection[str], field='case', smoke=()):
  """A law of algorithms, given their case or a field of it; see `laws.law`."""

  def value(name):
    case = ALGORITHMS[name]
    return case if field == 'case' else getattr(case, field)

  return laws.law(names, fast, field, value, long=LONG, smoke=smoke)


# Those of `ONE_EACH` whose programs are compiled slowly, and baselines.
NIGHTLY = {
  'decentralised_tree', 'dp_fedavg_masked', 'dp_normfedavg', 'ferret',
  'fedsketchgate_heaprix', 'heaprix_exact', 'decentralised_gossip',
  'cocktail_sgd', 'sketched_sgd', 'onebit_adam', 'fedcomgate', 'decomfl',
  'diffsketch', 'feddyn', 'flora', 'cd_adam', 'fedprox', 'fednova', 'ef21',
  'fedavg_adamw_kept', 'demo', 'power_sgd', 'fedex', 'fedkseed',
  'fedsketchgate', 'iterative_sketching', 'fedcom_rand_k', 'fetchsgd', 'marina',
  'safl_int8', 'subspace', 'fedsketch_privix',
}  # fmt: skip
# A law of each algorithm, at the cost of one program that its laws share.
each_case = law(ALGORITHMS, fast={*ONE_EACH} - NIGHTLY, smoke=STRUCTURES)
# Laws of the engine: fast over a few structures, nightly over all cases.
each_structure = law(ALGORITHMS, fast=FAST)


def by_name(names: Iterable[str], long: Collection[str], parameter='name'):
  """Parametrises a test by names, those in `long` in the long tier."""
  return laws.law(names, names, parameter, long=long)


def cohort(absent: int = 0, seed: int = 0, size: int = 4) -> rounds.Cohort:
  """The first `absent` of four clients have weight 0; the others 1, 2, 3."""
  rng = np.random.default_rng(seed)
  ids = rng.permutation(POPULATION)[:size].astype(np.int32)
  weight = np.where(np.arange(size) >= absent, np.arange(size), 0)
  batches = (
    rng.standard_normal((size, 3, 5, 4), dtype=np.float32),
    rng.standard_normal((size, 3, 5, 2), dtype=np.float32),
  )
  return rounds.Cohort(ids, weight.astype(np.float32), batches)


def start(make: rounds.Make, mesh: jax.sharding.Mesh) -> rounds.FedState:
  return mesh_lib.place(
    mesh, rounds.init(make(HP), params_of(make), POPULATION)
  )


def full_participation(r: int) -> rounds.Cohort:
  full = cohort(0, r, POPULATION)
  return full._replace(weight=np.ones(POPULATION, np.float32))


def one_absent(r: int) -> rounds.Cohort:
  return cohort(1, r)


def one_of_all_absent(r: int) -> rounds.Cohort:
  return cohort(1, r, POPULATION)


def cohorts_of(make: rounds.Make) -> Callable[[int], rounds.Cohort]:
  """Cohorts that the algorithm takes, in which one client has weight 0."""
  return one_of_all_absent if make(HP).full_participation else one_absent


def secret(make: rounds.Make) -> tuple[Any, ...]:
  """What a round takes after its key: no data, and if private `SECRET`."""
  return (None, SECRET) if make(HP).releases else ()


@functools.cache
def program(make: rounds.Make, shards: int, **options):
  """The compiled round, and a state before the first one."""
  mesh = mesh_lib.cohort_mesh(shards)
  options = {'clients_per_step': 0} | options
  return jit(rounds.run_round(make, mesh, **options)), start(make, mesh)


def play(
  make: rounds.Make, shards: int = 2, count: int = 5,
  cohort_of: Callable[[int], rounds.Cohort] | None = None, **options,
):  # fmt: skip
  """Plays rounds; returns the state and the last metrics, on the host."""
  cohort_of = cohort_of or cohorts_of(make)
  states, metrics = _play(make, shards, count, cohort_of, **options)
  return states[-1], metrics[-1] if metrics else {}


def play_all(make: rounds.Make, shards: int = 2, cohort_of=None):
  """The states before and after every round, and every round's metrics."""
  return _play(make, shards, 5, cohort_of or cohorts_of(make))


# Caches are behind functions, since they tell a default from an argument.
@functools.cache
def _play(make, shards, count, cohort_of, **options):
  round_fn, state = program(make, shards, **options)
  states, metrics = [state], []
  for r in range(count):
    state, row = round_fn(HP, state, cohort_of(r), KEY, *secret(make))
    states.append(state)
    metrics.append(row)
  return jax.device_get((states, metrics))
