"""Hyperparameters that change from round to round."""

from cases import ALGORITHMS, HP, KEY, jit, one_absent, start
import chex
from fl_sketch import experiment, rounds
from fl_sketch.rounds import mesh as mesh_lib
import jax.numpy as jnp
import numpy as np
import pytest
from runs import SMALL


@pytest.mark.nightly
@pytest.mark.covers('S1-AppG')
def test_a_decayed_rate_is_that_rate():
  exp = experiment.build(SMALL | {'lr_decay': 0.5, 'client_lr': 0.8})
  rates = [exp.schedule(exp.hyper, jnp.int32(r)).client_lr for r in range(3)]
  np.testing.assert_allclose(rates, [0.8, 0.4, 0.2])
  assert experiment.build(SMALL).schedule is None


@pytest.mark.representatives('safl_adam')
@pytest.mark.parametrize('name', ['fedavg', 'safl_adam'])
def test_a_schedule_sets_what_a_round_is_given(name):
  make, mesh = ALGORITHMS[name].make, mesh_lib.cohort_mesh()

  def halved(hp, r):
    return hp._replace(client_lr=hp.client_lr * 0.5**r, server_lr=1.0 / (1 + r))

  scheduled = jit(rounds.run_round(make, mesh, schedule=halved))
  plain = jit(rounds.run_round(make, mesh))
  states = [start(make, mesh) for _ in range(2)]
  for r in range(3):
    cohort = one_absent(r)
    states = [
      scheduled(HP, states[0], cohort, KEY)[0],
      plain(halved(HP, jnp.int32(r)), states[1], cohort, KEY)[0],
    ]
  chex.assert_trees_all_close(states[0].params, states[1].params, rtol=1e-6)
