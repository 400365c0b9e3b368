"""What attacks find in a tanh layer of 12 unknowns and 96 parameters."""

import functools

from fl_sketch import attacks, local as local_work, sketches
from fl_sketch.attacks import objectives
import jax
import jax.numpy as jnp
import numpy as np
from papers.song.attacks import settings, victims
import pytest

M, D, SUCCESS = 12, 96, 0.01
VICTIM = victims.load(settings.AttackConfig())
GAUSSIAN = sketches.gaussian(4 * M)
FAST = {'steps': 150, 'restarts': 3, 'start_scale': 0.3}


def keys(points, rounds=1, same=False):
  """Hash keys [points, rounds]; `same` ones for all rounds of a point."""
  split = jax.random.split(jax.random.key(1), (points, rounds))
  return jnp.broadcast_to(split[:, :1], split.shape) if same else split


def batch_of(x, y):
  return {'x': x[None], 'y': y[None]}


@functools.cache
def client(op, local):
  """What the clients of the points send in each round, as one program."""
  see = attacks.view(VICTIM.loss_fn, local=local, sketch=op)

  def one(args):
    hashes, x, y = args
    if op is None:
      sent = see(VICTIM.params, batch_of(x, y), None)
      return jnp.broadcast_to(sent, (len(hashes), *sent.shape))
    return jax.vmap(lambda h: see(VICTIM.params, batch_of(x, y), h))(hashes)

  return jax.jit(lambda *args: jax.lax.map(one, args))


def observe(hashes, op=GAUSSIAN, local=None):
  """What the first clients send, [points, rounds, ...]."""
  n = len(hashes)
  return client(op, local)(hashes, VICTIM.x[:n], VICTIM.y[:n])


@functools.cache
def program(op, local, **own):
  """Attacks points one after another; one compilation for many tests."""

  def one(args):
    observed, hashes, params, x, y = args
    shared = FAST | {'labels': y[None], 'pooled': True, 'local': local} | own
    if op is not None:
      shared |= {'sketch': op, 'sketch_key': hashes}
    params = jnp.broadcast_to(params, (len(hashes), *params.shape))
    key = jax.random.fold_in(hashes[0], 2)
    return attacks.reconstruct(
      VICTIM.loss_fn, params, observed, x[None], key, **shared
    )

  return jax.jit(lambda *args: jax.lax.map(one, args))


def errors(hashes, observed, op=GAUSSIAN, local=None, **own):
  """Relative error of the reconstruction of each point."""
  n = len(hashes)
  x, y = VICTIM.x[:n], VICTIM.y[:n]
  params = np.stack([VICTIM.params] * n)
  run = program(op, local, **own)
  guesses = jax.device_get(run(observed, hashes, params, x, y))
  miss = np.linalg.norm(guesses.x[:, 0] - x, axis=1)
  return miss / np.linalg.norm(x, axis=1)


def share(distances):
  return np.mean(distances < SUCCESS)


def gradient_and_jacobian(x, y):
  """Of one point in closed form: f64[D] and J, f64[D, M]."""
  w, x, y = (np.asarray(a, float) for a in (VICTIM.params, x, y))
  t = np.tanh(x @ w)
  inner = (t - y) * (1 - t**2)
  slope = (1 - t**2) ** 2 - 2 * t * inner
  # d (x_i inner_j) / d x_k
  jacobian = np.einsum('ik,j->ijk', np.eye(M), inner)
  jacobian += np.einsum('i,j,kj->ijk', x, slope, w)
  return np.outer(x, inner).ravel(), jacobian.reshape(D, M)


def dense(op, key):
  """R, [numbers in a table, D], from the tables of unit vectors."""
  units = jnp.eye(D).reshape(D, *VICTIM.params.shape)
  return jax.vmap(op.sketch, (None, 0))(key, units).reshape(D, -1).T


@pytest.mark.parametrize(
  'op', [GAUSSIAN, sketches.srft(24)], ids=['real', 'complex']
)
def test_the_objective_and_its_gradient_are_their_formulas(op):
  """2 J^T R^T (R grad F - y) / |y|^2: section 7 of Song et al., scaled."""
  key, (guess, x), y = keys(1)[0, 0], VICTIM.x[:2], VICTIM.y[0]
  see = attacks.view(VICTIM.loss_fn, sketch=op)

  @jax.jit
  def value_and_gradient(guess):
    observed = see(VICTIM.params, batch_of(x, y), key)

    def value_fn(guess):
      sent = see(VICTIM.params, batch_of(guess, y), key)
      return objectives.relative_l2(sent, observed)

    return jax.value_and_grad(value_fn)(guess), observed, dense(op, key)

  (value, grad), observed, matrix = jax.device_get(value_and_gradient(guess))
  gradient, jacobian = gradient_and_jacobian(guess, y)
  miss = matrix @ gradient - observed
  square = np.linalg.norm(observed) ** 2
  np.testing.assert_allclose(
    value, np.linalg.norm(miss) ** 2 / square, rtol=1e-5
  )
  expected = 2 * (jacobian.T @ (matrix.conj().T @ miss)).real / square
  np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-5)


def test_the_whole_gradient_gives_the_input_away():
  hashes = keys(12)
  assert (errors(hashes, observe(hashes, None), None) < 1e-3).all()


@pytest.mark.nightly
@pytest.mark.parametrize(('op', 'least', 'most'), [
  (GAUSSIAN, 0.8, 1), (sketches.block_cyclic(4 * M), 0.8, 1),
  (sketches.gaussian(8), 0, 0),
])  # fmt: skip
def test_numbers_for_each_unknown_decide_what_is_found(op, least, most):
  """Catches inputs that are found from too few numbers, or never."""
  hashes = keys(12)
  assert least <= share(errors(hashes, observe(hashes, op), op)) <= most


@pytest.mark.nightly
@pytest.mark.parametrize('op', [None, GAUSSIAN], ids=['gradient', 'sketch'])
def test_gradient_descent_finds_the_inputs_too(op):
  """The search of Song et al., with backtracking, from starts near 0."""
  hashes, own = keys(12), {'optimizer': 'armijo', 'steps': 600, 'restarts': 5}
  assert share(errors(hashes, observe(hashes, op), op, **own)) >= 0.8


@pytest.mark.nightly
def test_fresh_sketches_add_up_and_the_same_one_does_not():
  op, fresh, same = sketches.gaussian(6), keys(12, 4), keys(12, 4, same=True)
  assert share(errors(fresh, observe(fresh, op), op)) >= 0.5
  assert share(errors(same, observe(same, op), op)) == 0


@pytest.mark.nightly
def test_updates_of_several_steps_need_an_attacker_who_unrolls_them():
  hashes, client_lr = keys(12), 0.3
  local = local_work.sgd(VICTIM.loss_fn, client_lr, local_steps=3)
  update = observe(hashes, local=local)
  assert share(errors(hashes, update, local=local)) >= 0.8
  as_gradient = update / (3 * client_lr)
  assert share(errors(hashes, as_gradient)) == 0
