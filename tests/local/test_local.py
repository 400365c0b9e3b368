import cases
import chex
from fl_sketch import local
from fl_sketch.rounds import keys
import jax
import jax.numpy as jnp
import numpy as np
import pytest

BATCHES = tuple(x[0] for x in cases.cohort().batches)  # three batches


def run(batches=BATCHES, **options):
  work = local.sgd(cases.loss_fn, 0.1, **options)
  return work(cases.PARAMS, batches, cases.KEY, None)


def by_hand(order):
  theta = cases.PARAMS
  losses = []
  for k in order:
    batch = tuple(x[k] for x in BATCHES)
    loss, grad = jax.value_and_grad(cases.loss_fn)(theta, batch)
    losses.append(loss)
    theta = jax.tree.map(lambda p, g: p - 0.1 * g, theta, grad)
  moved = jax.tree.map(jnp.subtract, cases.PARAMS, theta)
  return moved, np.mean(losses)


@pytest.mark.parametrize(('held', 'steps', 'order'), [
  (3, None, [0, 1, 2]), (3, 7, [0, 1, 2, 0, 1, 2, 0]), (3, 2, [0, 1]),
  (1, 4, [0] * 4),
])  # fmt: skip
def test_the_steps_visit_the_batches_in_turn(held, steps, order):
  moved, metrics = run(tuple(x[:held] for x in BATCHES), local_steps=steps)
  want, loss = by_hand(order)
  chex.assert_trees_all_close(moved, want, atol=1e-6)
  np.testing.assert_allclose(metrics['train_loss'], loss, rtol=1e-6)


@pytest.mark.parametrize('clip', [0.3, 1e6])
def test_a_gradient_is_clipped_before_all_else(clip):
  """Catches a norm of one array, and a decay that is clipped as well."""
  decay = 0.2

  def by_numpy(theta, batch):
    loss, grad = jax.value_and_grad(cases.loss_fn)(theta, batch)
    leaves = [np.float64(g) for g in jax.tree.leaves(grad)]
    norm = np.sqrt(sum(np.square(g).sum() for g in leaves))
    lengths.append(norm)
    scale = np.float32(min(1, clip / norm))
    return loss, jax.tree.map(lambda g, p: scale * g + decay * p, grad, theta)

  lengths, theta = [], cases.PARAMS
  for k in range(3):
    _, grad = by_numpy(theta, tuple(x[k] for x in BATCHES))
    theta = jax.tree.map(lambda p, g: p - 0.1 * g, theta, grad)
  moved, _ = run(clip=clip, weight_decay=decay)
  want = jax.tree.map(jnp.subtract, cases.PARAMS, theta)
  chex.assert_trees_all_close(moved, want, atol=1e-6)
  assert (min(lengths) > clip) == (clip < 1)
  whole = tuple(x.reshape(-1, *x.shape[2:]) for x in BATCHES)
  one = local.gradient(cases.loss_fn, weight_decay=decay, clip=clip)
  found, _ = one(cases.PARAMS, BATCHES, None, None)
  _, grad = by_numpy(cases.PARAMS, whole)
  chex.assert_trees_all_close(found, grad, atol=1e-6)


def test_no_step_is_made_on_a_batch_of_padding():
  def loss(params, batch):
    return jnp.where(batch['mask'].any(), jnp.sum(params**2), 0)

  masks = jnp.array([[1, 1], [0, 0], [1, 0], [0, 0]], bool)
  work = local.sgd(loss, 0.1, weight_decay=0.5)
  moved, metrics = work(jnp.ones(1), {'mask': masks}, cases.KEY, None)
  want, _ = work(jnp.ones(1), {'mask': masks[jnp.array([0, 2])]}, None, None)
  np.testing.assert_allclose(moved, want, rtol=1e-6)
  loss = (1 + 0.75**2) / 2
  np.testing.assert_allclose(metrics['train_loss'], loss, rtol=1e-6)


def drawing(params, batch, key):
  """Its gradient is a draw."""
  del batch
  return params * jax.random.normal(key)


def test_a_loss_draws_anew_in_every_round_client_and_step():
  """A dropout mask that stays would train a part of the model alone."""
  only = tuple(x[:1] for x in BATCHES)
  again = lambda k: local.sgd(drawing, 1.0, local_steps=k)
  works = [cases.jit(again(k)) for k in (1, 2, 3)]

  def draws(r, client):
    roots = keys.round_keys(cases.KEY, r)
    key = keys.local_key(keys.for_client(roots, client))
    return np.diff([0.0, *(work(0.0, only, key, None)[0] for work in works)])

  found = np.ravel([draws(r, c) for r in range(2) for c in range(2)])
  apart = np.abs(np.subtract.outer(found, found))[np.triu_indices(12, 1)]
  assert apart.min() > 1e-4
  three = local.sgd(drawing, 1.0)(0.0, BATCHES, cases.KEY, None)[0]
  np.testing.assert_allclose(three, works[2](0.0, only, cases.KEY, None)[0])
  one = local.gradient(drawing)(0.0, BATCHES, cases.KEY, None)[0]
  first = keys.step_key(cases.KEY, 0)
  np.testing.assert_allclose(one, jax.random.normal(first), rtol=1e-6)
