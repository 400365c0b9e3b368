"""Laws of private local steps. Statistical bounds have false alarms < 1e-6."""

import functools

import cases
import chex
from fl_sketch import local
from fl_sketch.privacy.mechanisms import grid
from fl_sketch.rounds.keys import step_key
import jax
import jax.numpy as jnp
from jax.random import fold_in
import numpy as np
import pytest

KEY = jax.random.key(3)
STEPS, MAX_BATCH, DIMENSION = 4, 6, 3
LR, CLIP = 0.1, 0.7
PARAMS = {'w': jnp.array([0.3, -0.2, 0.1]), 'b': jnp.float32(0.5)}
MANY = 50_000
MICROBATCHES = {'expected_batch': 4, 'microbatch': 4}


def loss_fn(params, batch):
  away = batch['x'] @ params['w'] + params['b'] - batch['y']
  return jnp.mean(away**2) / 2


def make_batches(share=0.6):
  rng = np.random.default_rng(0)
  shape = STEPS, MAX_BATCH
  return {
    'x': rng.standard_normal((*shape, DIMENSION), dtype=np.float32),
    'y': rng.standard_normal(shape, dtype=np.float32),
    'mask': rng.random(shape) < share,
  }


@functools.cache
def program(weight_decay):
  options = {'weight_decay': weight_decay, **MICROBATCHES}

  def work(noise, batches):
    steps = local.private_sgd(loss_fn, LR, CLIP, noise, **options)
    return steps(PARAMS, batches, KEY, None)

  return cases.jit(work)


def run(batches, noise=0.0, weight_decay=0.0):
  work = program(weight_decay)
  # Done before it returns: tests change the arrays that JAX reads in place.
  return jax.block_until_ready(work(noise, batches))


def first_step(batches):
  return {name: x[:1].copy() for name, x in batches.items()}


@cases.jit
def noise_alone(key, mask):
  """The pseudo-gradient of f32[MANY] parameters with gradients of zero."""
  flat = lambda params, batch: jnp.mean(batch['x']) + 0 * params.sum()
  work = local.private_sgd(flat, LR, CLIP, 1.5, expected_batch=4, microbatch=1)
  batches = {'x': jnp.ones(mask.shape), 'mask': mask}
  return work(jnp.zeros(MANY), batches, key, None)[0]


@cases.jit
def noise_of(key):
  """The noise on the sum of a step."""
  points = grid.make(clip_norm=CLIP, noise_multiplier=1.5, clients=MAX_BATCH)
  drawn = grid.noise(key, grid.encode(PARAMS, points), points)
  return grid.decode(drawn, points)


def test_it_is_its_twin_given_the_noise():
  batches = make_batches()
  result, metrics = run(batches, noise=1.5, weight_decay=0.2)
  b, w = np.float64(PARAMS['b']), np.float64(PARAMS['w'])
  clipped, losses = [], []
  for k in range(STEPS):
    total = {'b': 0.0, 'w': np.zeros(DIMENSION)}
    mask = batches['mask'][k]
    for x, y in zip(batches['x'][k][mask], batches['y'][k][mask], strict=True):
      away = x @ w + b - y
      norm = abs(away) * np.sqrt(1 + x @ x)
      scale = min(1, CLIP / norm)
      total['b'] += scale * away
      total['w'] += scale * away * x
      clipped.append(scale < 1)
      losses.append(away**2 / 2)
    noise = noise_of(fold_in(KEY, k))
    b = b - LR * ((total['b'] + noise['b']) / 4 + 0.2 * b)
    w = w - LR * ((total['w'] + noise['w']) / 4 + 0.2 * w)
  assert 0 < np.mean(clipped) < 1
  target = {'b': np.float64(PARAMS['b']) - b, 'w': np.float64(PARAMS['w']) - w}
  chex.assert_trees_all_close(result, target, atol=1e-5)
  np.testing.assert_allclose(metrics['train_loss'], np.mean(losses), rtol=1e-5)


def test_noises_have_their_standard_deviation_and_are_independent():
  """Of two steps, two clients and two rounds, whoever is there."""
  nobody = np.zeros((2, 1), bool)

  def noise(client, round, mask=nobody):
    return noise_alone(fold_in(fold_in(KEY, round), client), mask)

  noises = [noise(0, 0), noise(1, 0), noise(0, 1), noise(1, 1)]
  np.testing.assert_array_equal(noise(0, 0, ~nobody), noises[0])
  stddev = np.sqrt(2) * LR * 1.5 * CLIP / 4
  assert abs(noises[0].mean()) < 6 * stddev / np.sqrt(MANY)
  # Of a normal sample the variance has relative standard error sqrt(2 / n).
  assert abs(noises[0].var() / stddev**2 - 1) < 6 * np.sqrt(2 / MANY)
  first = noise(0, 0, nobody[:1])
  correlation = np.corrcoef([first, noises[0] - first, *noises[1:]])
  correlation = correlation[np.triu_indices(5, 1)]
  assert np.all(np.abs(correlation) < 6 / np.sqrt(MANY))  # 10 * 2e-9


@pytest.mark.parametrize('huge', [1e3, 3e38, np.inf, np.nan])
def test_one_sample_moves_a_step_by_no_more_than_its_clip(huge):
  batches = first_step(make_batches())
  batches['x'][0, 2] = [huge, -huge, huge]
  batches['y'][0, 2] = -1.0
  moved = []
  for present in (False, True):
    batches['mask'][0, 2] = present
    moved.append(jnp.append(*run(batches)[0].values()))
  away = np.linalg.norm(np.subtract(*moved))
  assert away <= LR * CLIP / 4 * (1 + 1e-5)
  if huge < 1e19:
    assert away >= LR * CLIP / 4 * (1 - 1e-5)
  elif not np.isfinite(huge):  # it counts 0
    assert away == 0


def drawing(params, batch, key):
  """A loss with a mask as of dropout, which it scales by a sample's x."""
  kept = jax.random.bernoulli(key, 0.5, (len(batch['x']), DIMENSION))
  return jnp.mean((kept * batch['x']) @ params['w']) + 0 * params['b']


def test_what_a_loss_draws_does_not_depend_on_who_is_there():
  """Masks by position would move with a sample, and its neighbours' sums."""
  work = local.private_sgd(drawing, LR, CLIP, 0.0, expected_batch=4)
  work = cases.jit(work)
  batches = first_step(make_batches(share=1.0))
  every, _ = work(PARAMS, batches, KEY, None)
  alone = []
  for i in range(MAX_BATCH):
    one = np.arange(MAX_BATCH)[None] == i
    alone.append(work(PARAMS, batches | {'mask': one}, KEY, None)[0])
  total = jax.tree.map(lambda *xs: sum(xs), *alone)
  chex.assert_trees_all_close(total, every, atol=1e-6)


def test_a_loss_that_draws_leaves_the_noise_as_it_is():
  """Noise under the key of a mask could be told from it."""
  ignoring = lambda params, batch, key: loss_fn(params, batch)
  batches = make_batches()
  work = local.private_sgd(ignoring, LR, CLIP, 1.5, **MICROBATCHES)
  result = cases.jit(work)(PARAMS, batches, KEY, None)
  chex.assert_trees_all_close(result, run(batches, noise=1.5), atol=1e-7)
  steps = range(100)
  drawn, noise = ([f(KEY, k) for k in steps] for f in (step_key, fold_in))
  data = [jax.random.key_data(key).tolist() for key in (*drawn, *noise)]
  assert len({*map(tuple, data)}) == 2 * len(steps)


def test_bad_arguments_are_refused():
  """Catches noise scaled by no batch, and a correction that leaks."""
  make = functools.partial(local.private_sgd, loss_fn, LR, CLIP, 1.0)
  with pytest.raises(ValueError, match='expected_batch'):
    make(expected_batch=float('nan'))
  with pytest.raises(ValueError, match='correction'):
    make(expected_batch=4)(PARAMS, make_batches(), KEY, PARAMS)
