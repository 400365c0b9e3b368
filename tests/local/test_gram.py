"""The Gram form of local steps is the direct one, but for rounding."""

import chex
from fl_sketch import models
from fl_sketch.local import gram
from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest

STEPS = 20
LR = 0.3
SCALE = {'mean': 0.4, 'std': 0.5}
MODEL = models.make('linear', 3)
RNG = np.random.default_rng(0)
PARAMS = {
  'dense': {
    'kernel': jnp.asarray(RNG.normal(size=(8, 3)), jnp.float32),
    'bias': jnp.asarray(RNG.normal(size=3), jnp.float32),
  }
}
KEY = jax.random.key(9)
ALL = {'label_smoothing': 0.1, 'weight_decay': 0.2}
MASKS = {
  'ragged': [True] * 4 + [False] * 3,
  'weights': [1.0, 0.0, 2.0, 0.5, 1.0, 0.0, 1.0],
  'no row': [False] * 7,
}


def full_batch(mask=None):
  rng = np.random.default_rng(1)
  batch = {
    'x': rng.integers(0, 256, (1, 7, 4, 2), np.uint8),
    'y': rng.integers(0, 3, (1, 7), np.int32),
  }
  return batch if mask is None else batch | {'mask': np.array([mask])}


LOSS_FN = losses.classification(MODEL, label_smoothing=0.1, **SCALE)


@jax.jit
def direct_step(params, batch):
  value, grads = jax.value_and_grad(LOSS_FN)(params, batch)
  move = lambda p, g: p - LR * (g + ALL['weight_decay'] * p)
  return jax.tree.map(move, params, grads), value


def direct_sgd(params, batches):
  """The slow twin: gradients of the loss, one step after another."""
  batch = jax.tree.map(lambda leaf: leaf[0], batches)
  end, values = params, []
  for _ in range(STEPS):
    end, value = direct_step(end, batch)
    values.append(value)
  moved = jax.tree.map(jnp.subtract, params, end)
  return moved, {'train_loss': sum(values) / STEPS}


@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_gram_form_equals_direct_steps(mask):
  batches = full_batch(mask)
  local = lambda lr: gram.gram_sgd(lr, STEPS, **ALL, **SCALE)
  run = jax.jit(lambda lr: local(lr)(PARAMS, batches, KEY, None))
  out = run(LR)
  expected = direct_sgd(PARAMS, batches)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, expected)
  chex.assert_trees_all_close(out, expected, atol=1e-5)


def test_what_it_cannot_do_is_refused():
  """Catches a correction, a layer or a batch that is silently left out."""
  local, batches = gram.gram_sgd(LR, STEPS), full_batch()
  two = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), batches)
  deep = PARAMS | {'out': PARAMS['dense']}
  rows = (PARAMS, batches, PARAMS), (deep, batches, None), (PARAMS, two, None)
  for params, data, correction in rows:
    with pytest.raises(ValueError, match='gram_sgd'):
      local(params, data, KEY, correction)
