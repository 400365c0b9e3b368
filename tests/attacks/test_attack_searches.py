"""How attacks look for inputs: searches, and tries from which one is picked."""

import functools

from fl_sketch import attacks, models, sketches
from fl_sketch.attacks import objectives, reconstruction, scores
from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np
from papers.song.attacks import victims
import pytest

from tests.attacks.test_attack_parts import normal

KEY = jax.random.key(0)


CURVED = np.diag([10.0, 3.0, 1.0]).astype(np.float32)


def trace(name, start, steps=100):
  """Values of a quadratic, whose curvatures differ by 10, on the way."""
  search = objectives.SEARCHES[name](steps)
  value_fn = lambda x: 0.5 * x @ CURVED @ x

  def step(carry, _):
    x, state = carry
    value, grad = jax.value_and_grad(value_fn)(x)
    updates, state = search.update(
      grad, state, x, value=value, grad=grad, value_fn=value_fn
    )
    return (x + updates, state), value

  return jax.lax.scan(step, (start, search.init(start)), length=steps)[1]


@pytest.mark.representatives('adam', 'lbfgs')
@pytest.mark.parametrize('name', objectives.SEARCHES)
def test_searches_go_down_a_quadratic(name):
  # Of starts that differ, under `vmap`, where line searches end at different
  # steps; one that is not a number does not keep the others waiting.
  starts = np.concatenate([normal(0, 3, 3), np.full((1, 3), np.nan)])
  *traces, lost = jax.jit(jax.vmap(functools.partial(trace, name)))(starts)
  for values in np.asarray(traces):
    assert values[-1] < 1e-2 * values[0]
    if name in ('armijo', 'lbfgs'):
      assert (np.diff(values) <= 0).all()
  assert np.isnan(lost).all()


SCALE = np.array([1.0, 2.0, 3.0], np.float32)


def distance(w, batch):
  """Its gradient is that of a sum over inputs: linear in them."""
  return 0.5 * jnp.sum(((w[None] - batch['x']) * SCALE[None]) ** 2)


def find(observed, key=KEY, loss_fn=distance, **options):
  options = {'labels': jnp.zeros(1), 'steps': 30, 'restarts': 3} | options
  like = jax.ShapeDtypeStruct((1, 3), jnp.float32)
  return attacks.reconstruct(
    loss_fn, jnp.zeros(3), observed, like, key, **options
  )


@pytest.mark.nightly
def test_tries_at_once_are_as_tries_one_by_one(monkeypatch):
  """Catches lanes that share draws, and a best that is no best."""
  observed = normal(0, 3)
  search = functools.partial(find, optimizer='adam', steps=100)
  apart = search(observed)
  monkeypatch.setattr(reconstruction, 'lanes_of', lambda tries: tries)
  together = search(observed)
  np.testing.assert_allclose(together.x, apart.x, rtol=1e-3, atol=1e-5)
  np.testing.assert_allclose(together.x[0], -observed / SCALE**2, atol=0.2)
  assert together.objective == together.objectives.min()


def test_a_try_that_fails_late_keeps_what_it_had():
  """Adam walks to x = 4, past what is no number any more."""

  def wall(w, batch):
    return distance(w, {'x': jnp.where(batch['x'] > 3, jnp.nan, batch['x'])})

  options = {'optimizer': 'adam', 'steps': 100, 'loss_fn': wall}
  guess = find(jnp.array([-4.0, 0.0, 0.0]), start_scale=0.1, **options)
  assert np.isnan(guess.trace[:, -1]).all()
  np.testing.assert_array_equal(
    guess.objectives, np.nanmin(guess.trace, axis=1)
  )
  assert 2.5 < guess.x[0, 0] <= 3


def test_what_is_found_is_in_its_box():
  """A diagonal quadratic: the least in the box is the clipped solution."""
  observed = np.array([-4.0, 1.0, 0.9], np.float32)  # solution 4, -1/4, -1/10
  options = {'box': (-0.2, 2.0), 'optimizer': 'adam', 'steps': 200}
  guess = jax.jit(lambda: find(observed, **options).x)()
  np.testing.assert_allclose(guess[0], [2.0, -0.2, -0.1], atol=1e-3)


@pytest.mark.nightly
def test_the_total_variation_is_added_to_the_objective():
  w = normal(0, 2, 3, 1)
  loss_fn = lambda w, batch: 0.5 * jnp.sum((w[None] - batch['x']) ** 2)
  stay = {'optimizer': 'adam', 'learning_rate': 0.0, 'steps': 1}
  plain, smooth = (
    attacks.reconstruct(
      loss_fn, w, w, w[None], KEY, labels=jnp.zeros(1), tv=tv, **stay
    )
    for tv in (0.0, 0.3)
  )
  np.testing.assert_array_equal(plain.x, smooth.x)
  added = 0.3 * objectives.total_variation(plain.x)
  assert added > 0.1
  np.testing.assert_allclose(smooth.objective - plain.objective, added, 1e-5)


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
