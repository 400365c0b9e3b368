"""Private rounds where JAX has 64-bit numbers: the same types and bits."""

import cases
import chex
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import chacha20_prng, private_metrics
from fl_sketch.rounds import mesh as mesh_lib
import jax
import pytest

PRIVATE = [n for n in cases.ALGORITHMS if n.startswith(('dp_', 'private_'))]
METRICS = private_metrics.Budget(4.0, 8)


@pytest.mark.nightly
@pytest.mark.parametrize('name', PRIVATE)
def test_a_round_has_the_same_types_and_numbers(name):
  """Catches sums, noise or two's complement of 64 bits, and other noise."""
  make, mesh = cases.ALGORITHMS[name].make, mesh_lib.cohort_mesh(1)
  run = rounds.run_round(make, mesh, clients_per_step=2, summary=METRICS)
  cohort, state = cases.cohorts_of(make)(0), cases.start(make, mesh)
  args = cases.HP, state, cohort, cases.KEY, None
  want = jax.device_get(cases.jit(run)(*args, cases.SECRET))
  with jax.enable_x64(True):
    found = jax.device_get(cases.jit(lambda *x: run(*x))(*args, cases.SECRET))
    of_secret = chacha20_prng.of_bytes(bytes(32))
    by_chacha, _ = jax.eval_shape(run, *args, of_secret)
  chex.assert_trees_all_close(found, want, rtol=1e-5, atol=1e-7)
  for wide in found[0], by_chacha:
    chex.assert_trees_all_equal_shapes_and_dtypes(wide, want[0])
