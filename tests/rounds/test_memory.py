"""Memory of rounds and evaluations: of chunks, not of cohorts or test sets."""

from fl_sketch import algorithms, rounds, sketches
from fl_sketch.rounds import mesh as mesh_lib
import jax
import jax.numpy as jnp
import pytest

WIDE, OUT = 1000, 100
DENSE = 4 * WIDE * OUT  # bytes of the parameters
HP = algorithms.Hyper(jnp.float32(0.1), jnp.float32(1.0))
OPTIONS = {'fedavg': {}, 'safl': {'sketch': sketches.block_cyclic(20_000)}}


def loss_fn(params, batch):
  x, y = batch
  return jnp.mean((x @ params - y) ** 2)


def temporary_bytes(name, clients, clients_per_step):
  make = algorithms.make(name, loss_fn, **OPTIONS[name])
  mesh = mesh_lib.cohort_mesh(2)
  round_fn = jax.jit(
    rounds.run_round(make, mesh, clients_per_step=clients_per_step)
  )
  state = rounds.init(make(HP), jnp.zeros((WIDE, OUT)), clients)
  cohort = rounds.Cohort(
    jnp.arange(clients),
    jnp.ones(clients),
    (jnp.zeros((clients, 1, 2, WIDE)), jnp.zeros((clients, 1, 2, OUT))),
  )
  lowered = round_fn.lower(HP, state, cohort, jax.random.key(0))
  return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.representatives('1-fedavg')
@pytest.mark.parametrize('name', OPTIONS)
@pytest.mark.parametrize('clients_per_step', [1, 4])
def test_memory_does_not_grow_with_the_cohort(name, clients_per_step):
  small = temporary_bytes(name, 16, clients_per_step)
  large = temporary_bytes(name, 128, clients_per_step)
  # A scan over chunks copies the batches of a shard, one over lanes does not.
  batches = 4 * 2 * (WIDE + OUT) * (128 - 16) // 2
  assert large - small <= 2**14 + (batches if clients_per_step > 1 else 0)
  # A few copies for a client's work, and the running sum.
  assert DENSE <= small <= (2 + 4 * clients_per_step) * DENSE


def test_memory_of_an_evaluation_is_that_of_one_batch():
  """Catches a vmap over the whole test set."""
  mesh = mesh_lib.cohort_mesh(2)
  # Sorting keeps XLA from fusing all of the work into one loop without arrays.
  metrics_fn = lambda params, x: {'loss': jnp.sort(x @ params)[0].sum()}
  evaluate = jax.jit(rounds.run_evaluation(metrics_fn, mesh))

  def temporary(batches):
    args = jnp.zeros((WIDE, OUT)), jnp.zeros((batches, 50, WIDE))
    compiled = evaluate.lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  assert temporary(64) - temporary(4) <= 2**12
