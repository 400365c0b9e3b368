"""What DeMo, PowerSGD and decayed residuals keep of what was not sent."""

import cases
from cases import full_participation
import chex
from fl_sketch import algorithms, codecs, rounds
from fl_sketch.rounds import error_feedback as feedback, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quadratics import client_3, linear, moved, rows, trail

N, D, HP = cases.POPULATION, cases.DIMENSION, cases.HP


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'residual_decay': 0.5}, 'residual_decay=0.5 to be 1 without error'),
    ({'residual_decay': 0.0, 'error_feedback': True}, 'residual_decay=0.0'),
    ({'residual_decay': 1.1, 'error_feedback': True}, 'residual_decay=1.1'),
  ],
)
def test_a_decay_that_means_nothing_is_refused(options, message):
  """Catches a residual that grows, and a decay of no residual."""
  with pytest.raises(ValueError, match=message):
    linear('fedcom', codec=codecs.top_k(3), **options)(HP)
  with pytest.raises(ValueError, match=message):
    feedback.compress(codecs.top_k(3), **options)


def test_client_momentum_is_refused_in_private_runs():
  """Catches an account that takes a client's memory for this round's data."""
  options = {'sketch': cases.CYCLIC, 'privacy': cases.RELEASE}
  with pytest.raises(ValueError, match=r'Private safl .*client_momentum=0.9'):
    linear('safl', client_momentum=0.9, **options)(HP)


@pytest.mark.parametrize('momentum', [0.0, 1.5])
def test_a_momentum_that_keeps_nothing_or_grows_is_refused(momentum):
  """Catches a factor of the momentum that is not checked."""
  with pytest.raises(ValueError, match=f'momentum={momentum} must be'):
    linear('demo', codec=codecs.dct_top_k(1, 4), momentum=momentum)(HP)


def test_what_demo_sends_leaves_the_momentum():
  """Catches a momentum that keeps what was sent, and steps that are not signs.

  The codec sends all, so that nothing is left.
  """
  make = linear('demo', codec=codecs.top_k(D), momentum=0.5)
  states, metrics = trail(make)
  assert np.abs(rows(states[-1].encode)).max() == 0
  np.testing.assert_allclose(np.abs(moved(states)), HP.server_lr, rtol=1e-3)
  assert metrics[-1]['downlink_bytes'] == 2


@pytest.mark.parametrize('clients', [full_participation, client_3])
def test_factors_and_errors_add_up_to_the_matrices(clients):
  """Catches an error of another basis, and a mean Q that is not the step's."""
  states, _ = trail(linear('power_sgd', rank=1), clients)
  whole = moved(trail(linear('fedavg'), clients)[0]).sum(0)
  error = rounds.state_of(states[-1].protocol, 'error').value
  left = rows(error)[clients(0).ids].mean(0)
  assert np.abs(left).max() > 1e-3
  want = whole - HP.server_lr * np.append([0, 0], left)
  np.testing.assert_allclose(moved(states).sum(0), want, atol=1e-7)


def three_of_all(r):
  """Three other clients every round, each with the same batches always."""
  full = full_participation(0)
  pick = np.random.default_rng(r).permutation(N)[:3]
  return jax.tree.map(lambda x: x[pick], full)


def test_an_error_of_factors_does_not_grow_where_cohorts_change():
  """Catches errors that add up how a client differs from the mean.

  Those of M - P Q' with the mean Q double from round 10 to 40.
  """
  states, _ = trail(linear('power_sgd', rank=1), three_of_all, 40)
  error = lambda r: rounds.state_of(states[r].protocol, 'error').value
  early, late = (np.linalg.norm(rows(error(r))) for r in (10, 40))
  assert 0.1 < late < 1.5 * early


@pytest.mark.nightly
def test_a_kernel_of_rank_one_travels_whole():
  """Catches factors of the wrong axes: a kernel is a matrix of its last."""
  rng = np.random.default_rng(0)
  shapes = {'kernel': (2, 3, 2, 4), 'row': (1, 5), 'bias': (4,)}
  params = {n: jnp.ones(shape) for n, shape in shapes.items()}
  slope = {n: rng.standard_normal(shape) for n, shape in shapes.items()}
  kernel = np.outer(rng.standard_normal(12), rng.standard_normal(4))
  slope['kernel'] = kernel.reshape(shapes['kernel'])
  slope = jax.tree.map(np.float32, slope)

  def loss_fn(params, batch):
    return batch.mean() * optax.tree.vdot(params, slope)

  make = algorithms.make('power_sgd', loss_fn, rank=1, local_steps=1)
  ids, one = np.arange(2, dtype=np.int32), np.ones(2, np.float32)
  cohort = rounds.Cohort(ids, one, np.float32([[[1]], [[3]]]))
  round_fn = rounds.run_round(make, mesh_lib.cohort_mesh(1))
  state = rounds.init(make(HP), params, 2)
  state, metrics = round_fn(HP, state, cohort, cases.KEY)
  want = jax.tree.map(
    lambda x, g: x - HP.server_lr * HP.client_lr * 2 * g, params, slope
  )
  chex.assert_trees_all_close(state.params, want, atol=1e-6)
  assert (
    metrics['uplink_bytes'] == metrics['downlink_bytes'] == 4 * (12 + 4 + 5 + 4)
  )
