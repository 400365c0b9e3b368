"""Private rounds where JAX has 64-bit numbers: the same types and bits."""

import cases
import chex
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import chacha20_prng, private_metrics
from fl_sketch.rounds import mesh as mesh_lib
import jax
import pytest

PRIVATE = [n for n in cases.ALGORITHMS if n.startswith(('dp_', 'private_'))]
# A bound that follows, noise of clients, over rounds, and of samples.
FAST = (
  'dp_fedavg_quantile', 'dp_fedavg_masked', 'dp_fedavg_banded',
  'private_iterative_sketching',
)  # fmt: skip
METRICS = private_metrics.Budget(4.0, 8)


def round_of(name, secret):
  """A round whose metrics are private, and its arguments."""
  make, mesh = cases.ALGORITHMS[name].make, mesh_lib.cohort_mesh(1)
  run = rounds.run_round(make, mesh, clients_per_step=2, summary=METRICS)
  cohort, state = cases.cohorts_of(make)(0), cases.start(make, mesh)
  return run, (cases.HP, state, cohort, cases.KEY, None, secret)


@pytest.mark.representatives(*FAST)
@pytest.mark.parametrize('name', PRIVATE)
def test_a_round_keeps_its_types(name):
  """Catches a loop over int32 that computes int64, and sums that widen."""
  run, args = round_of(name, chacha20_prng.of_bytes(bytes(32)))
  with jax.enable_x64(True):
    state, _ = jax.eval_shape(run, *args)
  chex.assert_trees_all_equal_shapes_and_dtypes(state, args[1])


@pytest.mark.representatives('dp_fedavg')
@pytest.mark.parametrize('name', PRIVATE)
def test_a_round_has_the_same_numbers(name):
  """Catches two's complement that is read as 64 bits, or noise of its own."""
  run, args = round_of(name, cases.SECRET)
  want = jax.device_get(cases.jit(run)(*args))
  with jax.enable_x64(True):
    found = jax.device_get(cases.jit(lambda *x: run(*x))(*args))
  chex.assert_trees_all_close(found, want, rtol=1e-5, atol=1e-7)
