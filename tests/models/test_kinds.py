"""Losses by kind: NumPy twins, padding, and sums that add up."""

import chex
from fl_sketch.models import Model, losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused_calls

RNG = np.random.default_rng(0)
BATCH, LENGTH, WIDTH = 6, 4, 3
# The outputs are the inputs, so that batches hold them.
IDENTITY = Model(lambda key, x: {}, lambda params, x, key: x)


def normal(*shape):
  return RNG.standard_normal((BATCH, *shape), dtype=np.float32)


def integers(low, high, *shape):
  return RNG.integers(low, high, (BATCH, *shape)).astype(np.int32)


def own(outputs, batch):
  """Sums over as many terms of a sample as its label says."""
  return {'loss': outputs * batch['y'], 'terms': batch['y']}


BATCHES = {
  'cross_entropy': {'x': normal(WIDTH), 'y': integers(0, WIDTH)},
  'tokens': {'x': normal(LENGTH, WIDTH), 'y': integers(-2, WIDTH, LENGTH)},
  'multilabel': {'x': normal(WIDTH), 'y': integers(0, 2, WIDTH)},
  'regression': {'x': normal(2, 2), 'y': normal(2, 2)},
  'own': {'x': normal(), 'y': integers(1, 4).astype(np.float32)},
}
each_kind = pytest.mark.parametrize('kind', BATCHES)


def functions(kind):
  return losses.make(IDENTITY, own if kind == 'own' else kind)


def log_softmax(x):
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


def by_hand(kind):
  """Means of every value over samples, or over what is no padding."""
  x, y = (np.float64(BATCHES[kind][name]) for name in 'xy')
  if kind in ('cross_entropy', 'tokens'):
    real = y >= 0
    label, logits = y[real].astype(int), log_softmax(x[real])
    loss = -np.mean(logits[np.arange(len(label)), label])
    found = {'loss': loss, 'accuracy': np.mean(logits.argmax(-1) == label)}
    of_tokens = {'perplexity': loss, 'bits': loss * np.log2(np.e)}
    return found | (of_tokens if kind == 'tokens' else {})
  if kind == 'multilabel':
    right = (x > 0) == (y > 0)
    loss = np.log1p(np.exp(-np.where(y > 0, x, -x))).mean()
    exact = right.all(1).mean()
    return {'loss': loss, 'accuracy': right.mean(), 'exact_match': exact}
  if kind == 'regression':
    return {'loss': np.square(x - y).mean()}
  return {'loss': np.average(x, weights=y)}


@each_kind
def test_a_kind_is_its_numpy_twin(kind):
  """A mean over padding, or over samples where it is of tokens."""
  loss_fn, metrics_fn = functions(kind)
  want, batch = by_hand(kind), BATCHES[kind]
  sums = metrics_fn({}, batch)
  count = sums.pop('count')
  means = {name: total / count for name, total in sums.items()}
  chex.assert_trees_all_close(means, want, rtol=1e-5)
  np.testing.assert_allclose(loss_fn({}, batch), want['loss'], rtol=1e-5)


@each_kind
def test_masked_rows_are_as_if_absent(kind):
  """Catches padding, copies of a sample, that enters a loss or a metric."""
  batch, mask = BATCHES[kind], np.array([1, 0, 1, 1, 0, 0], bool)
  kept = {name: x[mask] for name, x in batch.items()}
  for fn in functions(kind):
    masked = jax.jit(fn)({}, batch | {'mask': mask})
    chex.assert_trees_all_close(masked, fn({}, kept), rtol=1e-5)
    none = fn({}, batch | {'mask': 0 * mask})
    chex.assert_trees_all_equal(none, jax.tree.map(jnp.zeros_like, none))


@pytest.mark.representatives('regression', 'cross_entropy')
@each_kind
def test_metrics_add_up_over_batches(kind):
  """Catches means of batches, which do not add up to that of a test set."""
  _, metrics_fn = functions(kind)
  batch = BATCHES[kind]
  parts = [{k: x[s] for k, x in batch.items()} for s in (np.s_[:2], np.s_[2:])]
  total = jax.tree.map(jnp.add, *(metrics_fn({}, part) for part in parts))
  chex.assert_trees_all_close(total, metrics_fn({}, batch), rtol=1e-5)


def test_a_mask_of_tokens_is_padding():
  """Catches a mask of tokens that is ignored, or taken for one of rows."""
  batch, mask = BATCHES['tokens'], RNG.random((BATCH, LENGTH)) < 0.5
  padded = {'x': batch['x'], 'y': np.where(mask, batch['y'], -1)}
  for fn in functions('tokens'):
    masked = fn({}, batch | {'token_mask': mask})
    chex.assert_trees_all_equal(masked, fn({}, padded))


def test_inputs_are_x_or_all_that_is_no_label():
  """Catches a mask of rows, or a label, among the inputs of a model."""
  batch = {'a': np.array([[255, 0]], np.uint8), 'b': np.ones((1, 2), int)}
  rest = {'y': np.ones(1), 'mask': np.ones(1)}
  found = losses.inputs(batch | rest)
  want = {'a': np.float32([[1, 0]]), 'b': batch['b']}
  chex.assert_trees_all_equal(found, want)
  assert losses.inputs(batch | rest | {'x': rest['y']}) is rest['y']


broadcast = lambda kind, x, y: (
  lambda: losses.kind_of(kind)(jnp.zeros(x), {'y': jnp.zeros(y, int)})
)
test_shapes_that_would_be_broadcast_are_refused = refused_calls(
  (broadcast('regression', (5, 1), (5,)), r"Expected 'y' of shape \(5, 1\)"),
  (broadcast('multilabel', (5, 3), (5,)), r'of shape \(5, 3\), not \(5,\)'),
  (broadcast('tokens', (5, 4, 3), (5,)), r'of shape \(5, 4\), not'),
  (lambda: losses.make(IDENTITY, 'tokenz'), "loss='tokenz' must be one of"),
)
