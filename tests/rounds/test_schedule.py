"""What changes from round to round: hyperparameters, and named states."""

from cases import ALGORITHMS, HP, KEY, jit, one_absent, start
import chex
from fl_sketch import experiment, rounds
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
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


@pytest.mark.nightly
def test_a_scan_returns_the_trajectory_it_is_asked_for():
  """Catches values of the state before a round, or of the last one alone."""
  make, mesh = ALGORITHMS['safl_adam'].make, mesh_lib.cohort_mesh()
  round_fn = rounds.run_round(make, mesh)
  kept = lambda state: (state.round, rounds.state_of(state, 'mu'))
  cohorts = [one_absent(r) for r in range(3)]
  stacked = jax.tree.map(lambda *xs: np.stack(xs), *cohorts)
  scan = jit(rounds.scan_rounds(round_fn, trajectory=kept))
  last, metrics, values = scan(HP, start(make, mesh), stacked, KEY)
  state, single = start(make, mesh), jit(round_fn)
  for r, cohort in enumerate(cohorts):
    state, _ = single(HP, state, cohort, KEY)
    now = jax.tree.map(lambda x, r=r: x[r], values)
    chex.assert_trees_all_close(now, kept(state), rtol=1e-5)
  chex.assert_trees_all_close(last, state, rtol=1e-5)
  assert metrics['up'].shape == (3,)


STATEFUL = [n for n, c in ALGORITHMS.items() if c.make(c.hp).drift]


@pytest.mark.parametrize('name', STATEFUL)
def test_the_state_of_a_link_is_found_by_its_type_and_by_name(name):
  """Catches what a model's parameters of the same names would mix up."""
  case = ALGORITHMS[name]
  params = {'client': jnp.zeros(9), 'offset': jnp.ones(9)}
  state = rounds.init(case.make(case.hp), params, 8)
  link = state.protocol[0]
  assert rounds.state_of(state, type(link)) is link
  assert rounds.state_of(state, type(link).__name__) is link


@pytest.mark.parametrize('which', [comms.Bill, 'Bill', 'nobody', dict])
def test_a_name_that_says_not_which_state_is_refused(which):
  """The first of several would be the state of whichever link stands first."""
  case = ALGORITHMS['safl_adam']
  state = rounds.init(case.make(case.hp), jnp.zeros(9), 8)
  with pytest.raises(ValueError, match=r"Expected one '\w+' in the state"):
    rounds.state_of(state, which)
