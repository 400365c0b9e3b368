"""The conformance list of algorithms, on federated least squares.

A new algorithm gets every law of the tests by an entry in `ALGORITHMS`.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

from fl_sketch import algorithms
from fl_sketch import comms
from fl_sketch import rounds
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

POPULATION = 8
DIMENSION = 10
PARAMS = {'w': jnp.zeros((4, 2)), 'b': jnp.zeros(2)}
HP = algorithms.Hyper(jnp.float32(0.05), jnp.float32(0.1))
KEY = jax.random.key(1)
COUNT = sketches.count_sketch(2, 4)
MEAN = sketches.count_sketch(2, 4, combine='mean')
CYCLIC = sketches.block_cyclic(4)


def loss_fn(params, batch):
  x, y = batch
  return jnp.mean((x @ params['w'] + params['b'][None] - y) ** 2)


class Case(NamedTuple):
  """An algorithm, what it is in NumPy, and what it costs by hand."""

  make: rounds.Make
  twin: str  # in `reference`
  operator: sketches.Sketch
  up: int  # bytes a client sends in a round
  down: int  # bytes of a broadcast
  options: dict[str, Any]


def case(name, twin, operator, floats, **options) -> Case:
  make = algorithms.make(name, loss_fn, **options)
  return Case(make, twin, operator, 4 * floats, 4 * floats, options)


ALGORITHMS = {
  'fedavg': case('fedavg', 'sgd', sketches.identity(), DIMENSION),
  'iterative_sketching': case(
    'iterative_sketching', 'sgd', MEAN, 8, sketch=MEAN
  ),
  'fedsketch_privix': case('fedsketch_privix', 'sgd', COUNT, 8, sketch=COUNT),
  'safl_adam': case('safl', 'adam', CYCLIC, 4, sketch=CYCLIC),
  'safl_amsgrad': case(
    'safl', 'amsgrad', CYCLIC, 4, sketch=CYCLIC, server_optimizer='amsgrad'
  ),
  'safl_yogi': case(
    'safl', 'yogi', CYCLIC, 4, sketch=CYCLIC, server_optimizer='yogi'
  ),
  'safl_adagrad': case(
    'safl', 'adagrad', CYCLIC, 4, sketch=CYCLIC, server_optimizer='adagrad'
  ),
  'safl_momentum': case(
    'safl',
    'momentum',
    sketches.srht(4),
    4,
    sketch=sketches.srht(4),
    server_optimizer='momentum',
  ),
  'safl_cosine': case(
    'safl',
    'cosine',
    CYCLIC,
    4,
    sketch=CYCLIC,
    server_optimizer='sgd',
    schedule=optax.cosine_decay_schedule(1.0, 5, alpha=0.1),
  ),
}
each_algorithm = pytest.mark.parametrize(
  'case', ALGORITHMS.values(), ids=ALGORITHMS.keys()
)


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
  return comms.place(mesh, rounds.init(make(HP), PARAMS, POPULATION))


def one_absent(r: int) -> rounds.Cohort:
  return cohort(1, r)


@functools.cache
def play(
  make: rounds.Make,
  shards: int = 2,
  count: int = 5,
  cohort_of: Callable[[int], rounds.Cohort] = one_absent,
  lanes_per_step: int | None = 0,
):
  """Plays rounds; returns the state and the last metrics, on the host."""
  mesh = comms.cohort_mesh(shards)
  round_fn = jax.jit(
    rounds.run_round(make, mesh, lanes_per_step=lanes_per_step)
  )
  state, metrics = start(make, mesh), {}
  for r in range(count):
    state, metrics = round_fn(HP, state, cohort_of(r), KEY)
  return jax.device_get((state, metrics))
