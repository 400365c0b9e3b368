"""The pseudo-Hessian: exact, of the rank it says, and what follows from it."""

from fl_sketch import sketches
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
from papers.chen.curvature import pseudo_hessian
import pytest

KEY = jax.random.key(5)


def loss_fn(params, batch):
  """A network of one hidden layer without biases; d = 8."""
  out = jnp.tanh(batch['x'] @ params['w'].T) @ params['v']
  return jnp.square(out - batch['y']).mean() / 2


def linear_loss(params, batch):
  """grad_w F = matrix x: J is the matrix."""
  return params @ batch['matrix'] @ batch['x']


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


def network(n=4):
  rng = np.random.default_rng(0)
  params = {'w': rng.normal(size=(2, 3)), 'v': rng.normal(size=2)}
  batch = {'x': rng.normal(size=(n, 3)), 'y': rng.normal(size=n)}
  return jax.tree.map(jnp.asarray, (params, batch))


def dense(loss_fn, params, batch, *sketch):
  """J or R J, f64[equations, m]."""
  f = pseudo_hessian.gradient_of_inputs(loss_fn, params, batch, *sketch)
  x = batch['x']
  return np.asarray(jax.jit(jax.jacfwd(f))(x)).reshape(-1, x.size)


OPERATORS = {
  'none': None,
  'count sketch': sketches.count_sketch(1, 5, combine='mean'),
}


@pytest.mark.covers('S0-Def7.1/I7')
@pytest.mark.usefixtures('x64')
@pytest.mark.parametrize('name', OPERATORS)
def test_the_spectrum_is_that_of_the_matrix(name):
  op, (params, batch) = OPERATORS[name], network()
  problem = (loss_fn, params, batch, op, KEY)
  matrix, whole = dense(*problem), dense(loss_fn, params, batch)
  if op is not None:
    unravel = ravel_pytree(params)[1]
    table = lambda column: ravel_pytree(op.sketch(KEY, unravel(column)))[0]
    columns = [table(jnp.asarray(column)) for column in whole.T]
    np.testing.assert_allclose(matrix, np.stack(columns, 1), atol=1e-12)
  measured = pseudo_hessian.spectrum(*problem)
  exact = np.zeros(12)
  exact[: len(matrix)] = np.linalg.svd(matrix, compute_uv=False)
  np.testing.assert_allclose(measured.singular_values, exact, atol=1e-7)
  assert measured.equations == len(matrix)
  assert measured.rank == np.linalg.matrix_rank(matrix)
  # Of fewer equations than unknowns: no recovery, whatever the decrease.
  assert measured.rank <= len(matrix) < 12
  assert measured.recovery == 0
  assert measured.decrease == pytest.approx(exact[len(matrix) - 1], abs=1e-7)


@pytest.mark.covers('S0-def', 'S0-J1..J3')
@pytest.mark.usefixtures('x64')
def test_noise_moves_what_is_recovered_by_at_most_its_size():
  """With a linear gradient exactly |noise| / recovery, at the worst."""
  rng = np.random.default_rng(0)
  matrix = rng.normal(size=(9, 5))
  batch = {'x': jnp.asarray(rng.normal(size=5)), 'matrix': jnp.asarray(matrix)}
  measured = pseudo_hessian.spectrum(linear_loss, jnp.ones(9), batch)
  left, sigma, _ = np.linalg.svd(matrix)
  worst, noise = left[:, 4], rng.normal(size=(9, 100))
  solve = np.linalg.pinv(matrix)
  assert np.linalg.norm(solve @ worst) == pytest.approx(1 / measured.recovery)
  moved = np.linalg.norm(solve @ noise, axis=0)
  assert (moved <= np.linalg.norm(noise, axis=0) / measured.recovery).all()
  assert measured.recovery == pytest.approx(sigma[-1])
  # theta2, which is beta here; with more equations than unknowns theta1 is 0.
  assert measured.singular_values[0] == pytest.approx(sigma[0])
  assert measured.decrease == 0


def test_bad_questions_are_refused():
  params, batch = network()
  with pytest.raises(TypeError, match='int'):
    pseudo_hessian.spectrum(loss_fn, params, {'x': jnp.ones((2, 3), int)})
  with pytest.raises(ValueError, match='key'):
    pseudo_hessian.spectrum(loss_fn, params, batch, sketches.gaussian(4))
