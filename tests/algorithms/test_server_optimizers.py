"""Steps of the server's optimisers, without the rounds around them."""

import cases
from fl_sketch import algorithms
from fl_sketch.algorithms import power_sgd, server_optimizers
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference

RATE = cases.HP.server_lr


def steps(link, gradients):
  """The parameters after a step along each gradient, from zeros."""
  params = np.zeros_like(gradients[0])
  state = link.init(params)
  for gradient in gradients:
    updates, state = link.update(gradient, state, params)
    params = optax.apply_updates(params, updates)
  return params


@pytest.mark.covers('S4-Alg2[adam, amsgrad]')
@pytest.mark.parametrize('name', cases.EVERY)
def test_each_is_its_numpy_twin(name):
  """Catches bias correction in AMSGrad, and moments that start elsewhere."""
  rng = np.random.default_rng(0)
  gradients = rng.standard_normal((6, 10)).astype(np.float32)
  gradients[3:] *= 0.01  # the largest second moment of AMSGrad stays
  twin, want = reference.Server(name, 10), np.zeros(10)
  for gradient in gradients:
    want = want - twin.step(gradient, float(RATE))
  link = server_optimizers.server_step(cases.HP, name)
  np.testing.assert_allclose(steps(link, gradients), want, rtol=1e-4)


def test_a_schedule_multiplies_the_rate_of_a_round():
  """Catches a schedule that starts one round late."""
  schedule = lambda count: 1.0 / (1 + count)
  link = server_optimizers.server_step(cases.HP, 'sgd', schedule)
  out = steps(link, np.ones((3, 2), np.float32))
  np.testing.assert_allclose(out, -RATE * (1 + 1 / 2 + 1 / 3), rtol=1e-6)


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
  """Catches an algorithm that takes a schedule and drops it."""
  options = OPTIONS[name] | {'schedule': lambda count: 3.0 + count}
  make = algorithms.make(name, cases.loss_fn, **options)
  link = make(cases.HP).server
  broadcast = jax.tree.map(jnp.ones_like, cases.PARAMS)
  if name == 'power_sgd':
    broadcast = power_sgd.Message([], [], jax.tree.leaves(broadcast))
  args = link.init(cases.PARAMS), cases.PARAMS
  updates, _ = link.update(broadcast, *args)
  for x in jax.tree.leaves(updates):
    np.testing.assert_allclose(x, -3 * RATE, rtol=1e-6)
