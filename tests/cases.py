"""The conformance list of algorithms, on federated least squares.

A new algorithm gets every law of the tests by an entry in `ALGORITHMS`.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

from fl_sketch import algorithms
from fl_sketch import codecs
from fl_sketch import comms
from fl_sketch import rounds
from fl_sketch import sketches
from fl_sketch import topology
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

POPULATION = 8
DIMENSION = 10
PARAMS = {'w': jnp.zeros((4, 2)), 'b': jnp.zeros(2)}
HP = algorithms.Hyper(
  jnp.float32(0.05), jnp.float32(0.1), clip_norm=jnp.float32(0.05)
)
KEY = jax.random.key(1)
COUNT = sketches.count_sketch(2, 4)
MEAN = sketches.count_sketch(2, 4, combine='mean')
CYCLIC = sketches.block_cyclic(4)


def loss_fn(params, batch):
  x, y = batch
  return jnp.mean((x @ params['w'] + params['b'][None] - y) ** 2)


class Case(NamedTuple):
  """An algorithm with its options, and what it costs by hand."""

  name: str
  options: dict[str, Any]
  up: int  # bytes a client sends in the last of five rounds
  down: int  # bytes of the broadcast
  make: rounds.Make


def case(name, up, down=None, **options) -> Case:
  steps = {'local_steps': 3} if algorithms.entry(name).work == 'steps' else {}
  make = algorithms.make(
    name, loss_fn, population=POPULATION, **steps, **options
  )
  return Case(name, options, up, up if down is None else down, make)


def optimized(name, up, optimizers, **options) -> dict[str, Case]:
  """The algorithm with each of these server optimisers."""
  return {
    f'{name}_{optimizer}': case(name, up, server_optimizer=optimizer, **options)
    for optimizer in optimizers
  }


DENSE = 4 * DIMENSION
LAYERS = sketches.layerwise(sketches.block_cyclic, 4, (1, 3))
TOP, RANDOM = codecs.top_k(2), codecs.rand_k(5)
RING = topology.ring(POPULATION)
ADAPTIVE = ('adam', 'yogi', 'adagrad')
EVERY = (*ADAPTIVE, 'amsgrad', 'momentum')
ALGORITHMS = {
  'fedsgd': case('fedsgd', DENSE),
  'fedavg': case('fedavg', DENSE),
  **optimized('fedavg', DENSE, ADAPTIVE),
  'iterative_sketching': case('iterative_sketching', 32, sketch=MEAN),
  **optimized('iterative_sketching', 16, ['momentum'], sketch=CYCLIC),
  # A tree over 8 clients has 7 edges; each is used once in both directions.
  'decentralised_tree': case(
    'decentralised', 2 * 7 * 32 // 8, 0, sketch=MEAN, graph=RING
  ),
  # Two neighbours, three steps.
  'decentralised_gossip': case(
    'decentralised', 2 * 3 * 16, 0, sketch=CYCLIC, graph=RING, gossip_steps=3
  ),
  'fedsketch_privix': case('fedsketch_privix', 32, sketch=COUNT),
  'heaprix_exact': case('fedsketch_heaprix', 76, sketch=COUNT, k=3),
  'heaprix_literal': case(
    'fedsketch_heaprix', 32, sketch=COUNT, k=3, exact=False
  ),
  'diffsketch': case('diffsketch', 32, sketch=COUNT),
  'fedsketchgate': case('fedsketchgate', 32, sketch=COUNT),
  'fedsketchgate_heaprix': case('fedsketchgate', 76, sketch=COUNT, k=3),
  'fedsketchgate_printed': case(
    'fedsketchgate', 32, sketch=COUNT, printed=True
  ),
  **optimized('safl', 16, EVERY, sketch=CYCLIC),
  'safl_srht': case(
    'safl', 16, sketch=sketches.srht(4), server_optimizer='sgd'
  ),
  'safl_layerwise': case('safl', 16, sketch=LAYERS),
  'safl_clip_client': case('safl', 16, sketch=CYCLIC, clip='client'),
  'safl_clip_server': case('safl', 16, sketch=CYCLIC, clip='server'),
  'safl_cosine': case(
    'safl',
    16,
    sketch=CYCLIC,
    server_optimizer='sgd',
    schedule=optax.cosine_decay_schedule(1.0, 5, alpha=0.1),
  ),
  # Eight candidates: a table and their values up; down their indices, two
  # values and one bit a candidate.
  'sketched_sgd': case('sketched_sgd', 64, 41, sketch=COUNT, k=2),
  'sketched_sgd_momentum': case(
    'sketched_sgd', 64, 41, sketch=COUNT, k=2, momentum=0.5
  ),
  'fetchsgd': case('fetchsgd', 32, 16, sketch=COUNT, k=2),
  'fetchsgd_subtract': case(
    'fetchsgd',
    32,
    16,
    sketch=COUNT,
    k=2,
    error_update='subtract',
    momentum_masking=False,
    local_k=5,
  ),
  'fedcom_top_k': case('fedcom', 16, DENSE, codec=TOP),
  'fedcom_rand_k': case('fedcom', 20, DENSE, codec=RANDOM),
  # Nine values of a half byte each, and a norm.
  'fedcom_qsgd': case('fedcom', 5 + 4, DENSE, codec=codecs.qsgd(4)),
  'fedcom_sign': case('fedcom', 2 + 4, DENSE, codec=codecs.sign()),
  'feedback_top_k': case('fedcom', 16, DENSE, codec=TOP, error_feedback=True),
  'feedback_rand_k': case(
    'fedcom', 20, DENSE, codec=codecs.contract(RANDOM), error_feedback=True
  ),
  'feedback_qsgd': case(
    'fedcom',
    5 + 4,
    DENSE,
    codec=codecs.contract(codecs.qsgd(4)),
    error_feedback=True,
  ),
  'feedback_sign': case(
    'fedcom', 2 + 4, DENSE, codec=codecs.sign(), error_feedback=True
  ),
  'fedcomgate': case('fedcomgate', 20, DENSE, codec=RANDOM),
  'scaffold': case('scaffold', 2 * DENSE),
  'signsgd': case('signsgd', 2),
  'marina': case('marina', 20, DENSE, codec=RANDOM, sync_probability=0.3),
  'ef21': case('ef21', 16, DENSE, codec=TOP),
  'cd_adam': case('cd_adam', 16, codec=TOP),
  'onebit_adam': case('onebit_adam', 2 + 4, warmup=2),
  # Four of the six coordinates of a round: indices, half bytes, two scales.
  'cocktail_sgd': case(
    'cocktail_sgd',
    4 * 4 + 2 + 2 * 4,
    codec=codecs.quantized_top_k(4, 4, 2),
    mask_ratio=0.6,
  ),
}
each_case = pytest.mark.parametrize(
  'case', ALGORITHMS.values(), ids=ALGORITHMS.keys()
)
# One case of each, for laws that its options have no part in.
FIRST = {case.name: case for case in reversed(ALGORITHMS.values())}
each_algorithm = pytest.mark.parametrize(
  'case', FIRST.values(), ids=FIRST.keys()
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


def everyone(r: int) -> rounds.Cohort:
  full = cohort(0, r, POPULATION)
  return full._replace(weight=np.ones(POPULATION, np.float32))


def one_absent(r: int) -> rounds.Cohort:
  return cohort(1, r)


# Hardly optimised programs, since compiling is what takes time.
jit = functools.partial(
  jax.jit, compiler_options={'xla_backend_optimization_level': 0}
)


@functools.cache
def program(make: rounds.Make, shards: int, lanes_per_step: int | None):
  mesh = comms.cohort_mesh(shards)
  round_fn = rounds.run_round(make, mesh, lanes_per_step=lanes_per_step)
  return jit(round_fn), start(make, mesh)


@functools.cache
def play(
  make: rounds.Make,
  shards: int = 2,
  count: int = 5,
  cohort_of: Callable[[int], rounds.Cohort] = one_absent,
  lanes_per_step: int | None = 0,
):
  """Plays rounds; returns the state and the last metrics, on the host."""
  round_fn, state = program(make, shards, lanes_per_step)
  metrics = {}
  for r in range(count):
    state, metrics = round_fn(HP, state, cohort_of(r), KEY)
  return jax.device_get((state, metrics))
