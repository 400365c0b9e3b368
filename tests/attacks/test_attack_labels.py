"""Attackers who do not know the labels, and what needs no search at all."""

from fl_sketch import attacks, models, sketches
from fl_sketch.attacks import scores
from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np
from papers.song.attacks import victims
import pytest

CLASSES, INPUTS = 4, 6
MODULE = models.make('mlp', CLASSES, widths=(24,), activation='tanh')
PARAMS = models.init_params(MODULE, jax.random.key(3), (INPUTS,))
LOSS_FN = losses.classification(MODULE)
OP = sketches.block_cyclic(64)  # of 268 numbers


def samples(points, batch_size):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(points, batch_size, INPUTS))
  return np.float32(x), rng.integers(0, CLASSES, (points, batch_size))


def attack(x, y, **options):
  """Scores of attacks on sketched gradients, and their objectives."""
  see = attacks.view(LOSS_FN, sketch=OP)

  def one(args):
    key, x, y = args
    observed = see(PARAMS, {'x': x, 'y': y}, key)
    shared = {'sketch': OP, 'sketch_key': key, 'start_scale': 0.3, **options}
    return attacks.reconstruct(LOSS_FN, PARAMS, observed, x, key, **shared)

  keys = jax.random.split(jax.random.key(2), len(x))
  run = jax.jit(lambda *args: jax.lax.map(one, args))
  guesses = jax.device_get(run(keys, x, y))
  judged = [
    scores.score(guess, truth, labels=labels, true_labels=right)
    for guess, truth, labels, right in zip(
      guesses.x, x, guesses.labels, y, strict=True
    )
  ]
  judged = {k: np.concatenate([s[k] for s in judged]) for k in judged[0]}
  return judged | {'objective': guesses.objective}


@pytest.mark.nightly
def test_the_right_set_of_labels_is_found_among_all():
  x, y = samples(5, 2)
  assert len({tuple(sorted(row)) for row in y}) > 3
  candidates = victims.candidates(CLASSES, 2)
  result = attack(x, y, candidates=candidates, restarts=2, steps=150)
  assert result['label_accuracy'].mean() >= 0.8
  assert result['success'].mean() >= 0.8


@pytest.mark.nightly
def test_labels_are_found_with_the_inputs():
  """Deep leakage from gradients: where it converges, both are right."""
  x, _ = samples(8, 1)
  y = np.arange(8)[:, None] % CLASSES
  result = attack(x, y, num_classes=CLASSES, restarts=6, steps=200)
  ended = result['objective'] < 1e-7
  assert ended.mean() >= 0.6
  assert result['success'][ended].all()
  assert result['label_accuracy'][ended].all()
  assert not result['success'][~ended].any()


# What a gradient says outright.


def gradients(x, y):
  """Of single samples, leaves [samples, ...]."""
  one = lambda x, y: jax.grad(LOSS_FN)(PARAMS, {'x': x[None], 'y': y[None]})
  return jax.jit(jax.vmap(one))(x, y)


EVERY = np.repeat(np.arange(CLASSES), 5)  # each class five times
X = np.random.default_rng(1).normal(size=(len(EVERY), INPUTS))
X = X.astype(np.float32)


def test_the_label_of_one_sample_is_in_the_last_bias():
  bias = gradients(X, EVERY)['Dense_1']['bias']
  assert (bias.min(axis=1) < 0).all()
  np.testing.assert_array_equal(jax.vmap(attacks.last_layer_label)(bias), EVERY)


def test_the_input_of_one_sample_is_in_the_first_layer():
  key, grads = jax.random.key(0), gradients(X, EVERY)

  @jax.jit
  def distances(grads):
    """Relative distance of every guess from its input."""
    first = grads['Dense_0']
    guess = jax.vmap(attacks.dense_input)(first['kernel'], first['bias'])
    return jnp.linalg.norm(guess - X, axis=1) / np.linalg.norm(X, axis=1)

  sketched = lambda g: OP.desketch(key, OP.sketch(key, g), g)
  mixed = jax.tree.map(lambda g: (g + np.roll(g, 1, axis=0)) / 2, grads)
  assert (distances(grads) < 1e-5).all()
  assert (distances(jax.jit(jax.vmap(sketched))(grads)) > 0.1).all()
  assert np.median(distances(mixed)) > 0.1
