"""Slopes of the loss: unbiased, none on padding, no memory of a gradient."""

import cases
from fl_sketch import local
from fl_sketch.local.zeroth_order import along
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.sketches import hashing
import jax
import jax.numpy as jnp
from laws import jit
import numpy as np
import operators
from operators import vector
import pytest

KEYS = keys_lib.for_client(keys_lib.round_keys(cases.KEY, 0), 3)


def seeds_of(steps, directions):
  def seeds(keys):
    drawn = hashing.seeds(keys.round, steps * directions, hashing.ENTRY)
    return drawn.reshape(steps, directions, 2)

  return seeds


def slopes_of(loss_fn, params, batches, steps=1, directions=4, mu=0.1):
  work = local.zeroth_order(loss_fn, 0.1, seeds_of(steps, directions), mu=mu)
  return jit(work.apply)(params, batches, KEYS, None)


@pytest.mark.nightly
def test_the_mean_over_directions_is_the_gradient_of_a_quadratic():
  """Catches a factor of 2, signs, and shared directions; 2e-8 by chance."""
  rng, count = np.random.default_rng(0), 40_000
  params = {'b': rng.standard_normal(2), 'w': rng.standard_normal((2, 3))}
  params = jax.tree.map(jnp.float32, params)
  curvature = jnp.linspace(0.1, 2.0, 8)
  flat = lambda tree: jnp.concatenate(list(map(jnp.ravel, tree.values())))
  loss = lambda w, batch: 0.5 * (curvature * (flat(w) - batch[0]) ** 2).sum()
  batches = np.ones((1, 1, 8), np.float32)
  (slopes,), _ = slopes_of(loss, params, batches, directions=count, mu=0.5)
  zeros = jax.tree.map(jnp.zeros_like, params)
  z_of = jax.vmap(lambda seed: flat(along(zeros, seed, 1.0)))
  draws = np.float64(slopes[:, None] * z_of(seeds_of(1, count)(KEYS)[0]))
  gradient = vector(jax.grad(loss)(params, batches[0]))
  mean, error = operators.mean_and_error(draws)
  assert (np.abs(mean - gradient) < 6 * error).all()
  assert (6 * error < 0.2 * np.linalg.norm(gradient)).all()
  energy, error = operators.mean_and_error(np.square(draws).sum(1))
  want = (8 + 2) * np.square(gradient).sum()
  assert abs(energy - want) < 6 * error < 0.2 * want


def test_padding_moves_nobody():
  """Catches a slope, or a loss, of samples that are not there."""
  loss = lambda w, batch: jnp.where(batch['mask'], batch['x'] @ w, 7.0).mean()
  x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
  mask = np.array([[1, 1, 1], [0, 0, 0]]) > 0
  start = jnp.ones(4)
  padded = slopes_of(loss, start, {'x': x, 'mask': mask}, steps=2)
  alone = slopes_of(loss, start, {'x': x[:1], 'mask': mask[:1]}, steps=1)
  assert (padded[0][1] == 0).all()
  assert float(padded[1]['train_loss']) == float(alone[1]['train_loss'])


def test_a_loss_that_draws_has_no_slope_from_its_draws():
  """Catches another dropout mask on either side of a parameter."""
  loss = lambda w, batch, key: jax.random.normal(key) + 0 * w.sum()
  runs = [slopes_of(loss, jnp.ones(4), jnp.ones((k, 1)), k) for k in (1, 2)]
  assert all((slopes == 0).all() for slopes, _ in runs)
  once, twice = (metrics['train_loss'] for _, metrics in runs)
  assert 0 != once != twice  # each step has a draw of its own


WIDTH, BATCH = 64, 256
LAYER, ACTIVATION = 4 * WIDTH**2, 4 * BATCH * WIDTH  # bytes


def temporary_bytes(layers, steps, directions=2):

  def loss_fn(params, x):
    for w in params:
      x = jnp.tanh(x @ w)
    return jnp.square(x).mean()

  seeds = seeds_of(steps, directions)
  slopes = local.zeroth_order(loss_fn, 0.1, seeds, mu=0.1).apply
  args = [jnp.zeros((WIDTH, WIDTH))] * layers, jnp.zeros((steps, BATCH, WIDTH))
  lowered = jax.jit(lambda *args: slopes(*args, KEYS, None)).lower(*args)
  return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.nightly
@pytest.mark.parametrize(('steps', 'copies'), [(1, 1), (3, 2)])
def test_memory_is_that_of_a_forward_pass(steps, copies):
  """Catches a z that is kept, and activations for a backward pass."""
  less, more = (temporary_bytes(layers, steps) for layers in (12, 24))
  added = copies * 12 * LAYER
  assert added <= more - less <= added + 4 * ACTIVATION
  assert less <= added + 6 * ACTIVATION
  assert temporary_bytes(12, steps, directions=64) - less <= 2**16
