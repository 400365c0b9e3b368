"""Steps of the server's optimisers, without the rounds around them."""

import cases
from fl_sketch import algorithms
from fl_sketch.algorithms import power_sgd, server_optimizers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

RATE = cases.HP.server_lr


@pytest.mark.covers('S4-Alg2[adam, amsgrad]')
@pytest.mark.parametrize('name', cases.EVERY)
def test_each_is_its_numpy_twin(name):
  """Catches bias correction in AMSGrad, and moments that start elsewhere."""
  rng = np.random.default_rng(0)
  gradients = rng.standard_normal((6, 10)).astype(np.float32)
  gradients[3:] *= 0.01  # the largest second moment of AMSGrad stays
  link = server_optimizers.server_step(cases.HP, name)
  state, twin = link.init(gradients[0]), reference.Server(name, 10)
  for gradient in gradients:
    step, state = link.update(gradient, state)
    want = -twin.step(gradient, float(RATE))
    np.testing.assert_allclose(step, want, rtol=1e-4)


OPTIONS = {
  'fedavg': {},
  'fedcom': {'codec': cases.RANDOM},
  'fedcomgate': {'codec': cases.RANDOM, 'local_steps': 3},
  'marina': {'codec': cases.RANDOM, 'sync_probability': 0.5},
  'demo': {'codec': cases.TOP, 'signs': False},
  'power_sgd': {'rank': 2},  # which sends these arrays as they are
  'ef21': {'codec': cases.TOP, 'population': cases.POPULATION},
}


@pytest.mark.parametrize('name', OPTIONS)
def test_a_schedule_reaches_the_server_of_an_algorithm(name):
  """Catches a schedule that is dropped, or starts one round late."""
  options = OPTIONS[name] | {'schedule': lambda count: 3.0 + count}
  make = algorithms.make(name, cases.loss_fn, **options)
  link = make(cases.HP).server
  broadcast = jax.tree.map(jnp.ones_like, cases.PARAMS)
  if name == 'power_sgd':
    broadcast = power_sgd.Message([], [], jax.tree.leaves(broadcast))
  state = link.init(cases.PARAMS)
  for factor in (3, 4):
    updates, state = link.update(broadcast, state, cases.PARAMS)
    for x in jax.tree.leaves(updates):
      want = {'ef21': 1 + (factor == 4)}.get(name, 1) * factor
      np.testing.assert_allclose(x, -want * RATE, rtol=1e-6)
