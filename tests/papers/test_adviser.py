"""The advised learning rate against runs, and the pseudo-Hessian."""

from fl_sketch import sketches
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
from papers.chen.curvature import adviser, pseudo_hessian
import pytest

KEY = jax.random.key(3)
D, B = 256, 16
CURVATURE = np.float32(0.6) ** np.arange(D, dtype=np.float32)
FLAT = np.full(D, 2.0, np.float32)


def loss_fn(params, batch):
  return jnp.sum(batch['curvature'] * params['w'][None] ** 2) / 2


def advise(sketch, curvature=CURVATURE, **options):
  params = {'w': jnp.ones(len(curvature))}
  batches = {'curvature': curvature[None, None]}
  return adviser.advise(
    loss_fn, params, batches, sketch, key=KEY, steps=24, **options
  )


def descend(op, rates, rounds=100):
  """The loss at the end in that of the start, for each learning rate."""

  def run(rate):
    def one(w, key):
      w = w - op.desketch(key, op.sketch(key, rate * CURVATURE * w), w)
      return w, jnp.sum(CURVATURE * w**2)

    return jax.lax.scan(one, jnp.ones(D), jax.random.split(KEY, rounds))[1][-1]

  losses = jax.jit(lambda r: jax.lax.map(run, r))(jnp.float32(rates))
  return np.asarray(losses) / CURVATURE.sum()


@pytest.mark.parametrize('make', [sketches.ams, sketches.srht])
def test_the_advised_rate_converges_and_more_than_twice_it_diverges(make):
  """At d=256, b=16 and intrinsic dimension 2.5; L = 1."""
  op = make(B)
  advice = advise(op, probes=64)
  assert advice.intrinsic_dimension == pytest.approx(2.5, abs=0.25)
  assert advice.learning_rate == pytest.approx(0.87, abs=0.02)
  assert 0.058 < advice.pessimistic < 0.063
  rates = [advice.learning_rate, 2.2, advice.pessimistic]
  advised, larger, pessimistic = descend(op, rates)
  assert advised < 0.01
  assert not larger < 1e4
  assert pessimistic > 5 * advised


def test_no_embedding_gets_the_pessimistic_rule():
  """1 / (L + tr(H) / b) does not hold for uniform sampling: it diverges."""
  op = sketches.uniform_sampling(B)
  choice = advise(op)
  assert choice.learning_rate == choice.pessimistic
  advised, embedding = descend(op, [choice.learning_rate, 0.86])
  assert advised < 0.2
  assert not embedding < 1e4


def test_limits_and_what_has_no_rate():
  """Catches eigenvalues that cancel by their signs, and a rate of nothing."""
  assert advise(sketches.identity()).learning_rate == pytest.approx(1, 1e-4)
  assert advise(sketches.srht(D)).learning_rate == pytest.approx(1, 1e-4)
  signs = (-1.0) ** np.arange(D, dtype=np.float32)
  advice = advise(B, FLAT * signs)
  assert advice.intrinsic_dimension == pytest.approx(D, 1e-4)
  assert advice.learning_rate == pytest.approx(1 / (2 + 2 * D / B), 1e-4)
  with pytest.raises(ValueError, match='alpha'):
    advise(sketches.count_sketch(3, 5))
  with pytest.raises(ValueError, match='eigenvalues'):
    advise(B, 0 * FLAT)


HASHES = jax.random.key(5)


def network_loss(params, batch):
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


def dense(loss, params, batch, *sketch):
  """J or R J, f64[equations, m]."""
  f = pseudo_hessian.gradient_of_inputs(loss, params, batch, *sketch)
  return np.asarray(jax.jit(jax.jacfwd(f))(batch['x'])).reshape(-1, 12)


@pytest.mark.usefixtures('x64')
@pytest.mark.parametrize(
  'op', [None, sketches.count_sketch(1, 5, combine='mean')], ids=['', 'count']
)
def test_the_spectrum_is_that_of_the_matrix(op):
  rng = np.random.default_rng(0)
  params = {'w': rng.normal(size=(2, 3)), 'v': rng.normal(size=2)}
  batch = {'x': rng.normal(size=(4, 3)), 'y': rng.normal(size=4)}
  params, batch = jax.tree.map(jnp.asarray, (params, batch))
  problem = (network_loss, params, batch, op, HASHES)
  matrix, whole = dense(*problem), dense(network_loss, params, batch)
  if op is not None:
    unravel = ravel_pytree(params)[1]
    table = lambda column: ravel_pytree(op.sketch(HASHES, unravel(column)))[0]
    columns = [table(jnp.asarray(column)) for column in whole.T]
    np.testing.assert_allclose(matrix, np.stack(columns, 1), atol=1e-12)
  measured = pseudo_hessian.spectrum(*problem)
  exact = np.zeros(12)
  exact[: len(matrix)] = np.linalg.svd(matrix, compute_uv=False)
  np.testing.assert_allclose(measured.singular_values, exact, atol=1e-7)
  assert measured.equations == len(matrix)
  assert measured.rank == np.linalg.matrix_rank(matrix)
  # Of fewer equations than unknowns: no recovery, whatever the decrease.
  assert measured.recovery == 0
  assert measured.decrease == pytest.approx(exact[len(matrix) - 1], abs=1e-7)


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
