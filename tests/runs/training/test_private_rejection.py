"""Non-finite updates of a private round count as zeros, with their noise."""

import functools

from cases import ALGORITHMS, HP, KEY, SECRET, cohort, jit, start
import chex
from fl_sketch import rounds, runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import log
from harness import SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest

jitted = functools.cache(lambda *args: jit(rounds.run_round(*args)))


def played(name, clients):
  make, mesh = ALGORITHMS[name].make, mesh_lib.cohort_mesh()
  state = start(make, mesh)
  return jitted(make, mesh)(HP, state, clients, KEY, None, SECRET)


def spoiled(clients, slots, value):
  """The cohort with `value` in all batches of the clients in `slots`."""

  def spoil(x):
    x = np.array(x)
    x[list(slots)] = value
    return x

  return clients._replace(batches=jax.tree.map(spoil, clients.batches))


@pytest.mark.representatives('dp_fedavg_local')
@pytest.mark.parametrize('name', ['dp_fedavg', 'dp_fedavg_local'])
def test_nonsense_counts_as_an_update_of_zero(name):
  """Batches of zeros have a gradient of 0 where the parameters are 0."""
  clients = cohort(absent=0, size=4)
  clients = clients._replace(weight=np.ones(4, np.float32))
  state, metrics = played(name, spoiled(clients, [1, 3], np.nan))
  expected, _ = played(name, spoiled(clients, [1, 3], 0.0))
  chex.assert_trees_all_equal(state.params, expected.params)
  assert metrics['rejected_clients'] == 2
  assert metrics['participants'] == 2
  assert bool(metrics['finite'])


def test_a_cohort_of_nonsense_leaves_its_noise_and_does_not_stop_the_run():
  clients = cohort(absent=0, size=4)
  nonsense = spoiled(clients, range(4), np.inf)
  state, metrics = played('dp_fedavg_local', nonsense)
  assert jnp.abs(state.params['w']).min() > 0
  one = {k: v.item() for k, v in jax.device_get(metrics).items()}
  exp = runs.build(SMALL)
  private = exp._replace(guarantee='some')
  assert log._not_finite(exp, nonsense, one) == 'all updates'
  assert log._not_finite(private, nonsense, one) is None
