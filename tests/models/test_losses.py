"""Losses by kind: NumPy twins, padding, and sums that add up."""

import chex
from fl_sketch.models import Model, losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from tests.models.test_models import normal

RNG = np.random.default_rng(0)
# Its outputs are the inputs, so that batches hold them.
IDENTITY = Model(lambda key, x: {}, lambda params, x, key: params['one'] * x)
ONE = {'one': jnp.ones(())}
BATCH, LENGTH, WIDTH = 6, 4, 3


def integers(low, high, *shape):
  return RNG.integers(low, high, (BATCH, *shape)).astype(np.int32)


def own(outputs, batch):
  """Sums over as many terms of a sample as its label says."""
  return {'loss': outputs * batch['y'], 'terms': batch['y']}


def mean(outputs, batch):
  """A scalar, as many losses of other libraries are."""
  return jnp.square(outputs - batch['y']).mean()


OWN = {'own': own, 'mean': mean}
BATCHES = {
  'cross_entropy': {'x': normal(0, BATCH, WIDTH), 'y': integers(0, WIDTH)},
  'tokens': {
    'x': normal(1, BATCH, LENGTH, WIDTH), 'y': integers(-2, WIDTH, LENGTH),
  },
  'multilabel': {'x': normal(2, BATCH, WIDTH), 'y': integers(0, 2, WIDTH)},
  'regression': {'x': normal(3, BATCH, 2, 2), 'y': normal(4, BATCH, 2, 2)},
  'own': {'x': normal(5, BATCH), 'y': integers(1, 4).astype(np.float32)},
  'mean': {'x': normal(8, BATCH, 2), 'y': normal(9, BATCH, 2)},
  'quadratic': {
    'factor': normal(6, BATCH, 3, 2), 'optimum': normal(7, BATCH, 3),
  },
}  # fmt: skip
QUADRATIC = {'w': jnp.array([1.0, -2.0, 0.5])}
each_kind = pytest.mark.parametrize('kind', BATCHES)


def functions(kind):
  """Its loss, its metrics, and the parameters of both."""
  if kind == 'quadratic':
    return *losses.quadratic(), QUADRATIC
  return *losses.make(IDENTITY, OWN.get(kind, kind)), ONE


def rows(batch, index):
  return jax.tree.map(lambda leaf: np.asarray(leaf)[index], batch)


def masked(batch, mask):
  return batch | {'mask': jnp.asarray(mask)}


def log_softmax(x):
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize('smoothing', [0.0, 0.1, 0.9])
def test_smooth_and_soft_labels_are_their_numpy_twin(smoothing):
  """Catches shares of labels that do not sum to one."""
  loss_fn = losses.classification(IDENTITY, label_smoothing=smoothing)
  x, y = (BATCHES['cross_entropy'][name] for name in 'xy')
  ones = np.eye(WIDTH, dtype=np.float32)
  soft = 0.7 * ones[y] + 0.3 * ones[(y + 1) % WIDTH]
  for labels, shares in (y, ones[y]), (soft, soft):
    targets = (1 - smoothing) * shares + smoothing / WIDTH
    want = -(targets * log_softmax(np.float64(x))).sum(-1).mean()
    found = loss_fn(ONE, {'x': x, 'y': labels})
    np.testing.assert_allclose(found, want, rtol=1e-5)


def by_hand(kind):
  """Means of every value over samples or what is no padding, and how many."""
  batch = {name: np.float64(x) for name, x in BATCHES[kind].items()}
  if kind == 'quadratic':
    w = np.float64(QUADRATIC['w'])
    pairs = zip(batch['factor'], batch['optimum'], strict=True)
    values = [np.sum((a.T @ (w - b)) ** 2) / 2 for a, b in pairs]
    return {'loss': np.mean(values)}, BATCH
  x, y = batch['x'], batch['y']
  if kind in ('cross_entropy', 'tokens'):
    real = y >= 0
    label, logits = y[real].astype(int), log_softmax(x[real])
    loss = -np.mean(logits[np.arange(len(label)), label])
    found = {'loss': loss, 'accuracy': np.mean(logits.argmax(-1) == label)}
    of_tokens = {'perplexity': loss, 'bits': loss * np.log2(np.e)}
    return found | (of_tokens if kind == 'tokens' else {}), real.sum()
  if kind == 'multilabel':
    right = (x > 0) == (y > 0)
    loss = np.log1p(np.exp(-np.where(y > 0, x, -x))).mean()
    exact = right.all(1).mean()
    means = {'loss': loss, 'accuracy': right.mean(), 'exact_match': exact}
    return means, BATCH
  if kind in ('regression', 'mean'):
    return {'loss': np.square(x - y).mean()}, BATCH
  return {'loss': np.average(x, weights=y)}, y.sum()


@each_kind
def test_a_kind_is_its_numpy_twin(kind):
  """Catches means over padding, or over samples where they are of tokens.

  Those of a scalar: over a batch with its padding.
  """
  loss_fn, metrics_fn, params = functions(kind)
  (want, terms), batch = by_hand(kind), BATCHES[kind]
  sums = metrics_fn(params, batch)
  count = sums.pop('count')
  assert count == terms
  means = {name: total / count for name, total in sums.items()}
  chex.assert_trees_all_close(means, want, rtol=1e-5)
  np.testing.assert_allclose(loss_fn(params, batch), want['loss'], rtol=1e-5)


@pytest.mark.representatives('mean')
@each_kind
def test_masked_rows_are_as_if_absent(kind):
  """With a mask of ones the numbers are the same, of zeros they are 0."""
  loss_fn, metrics_fn, params = functions(kind)
  batch, mask = BATCHES[kind], np.array([1, 0, 1, 1, 0, 0], bool)
  junk = jax.tree.map(lambda leaf: jnp.asarray(leaf).at[1].set(77), batch)
  kept = rows(batch, np.flatnonzero(mask))
  ones, zeros = (masked(batch, np.full(6, x)) for x in (True, False))
  for fn in (jax.value_and_grad(loss_fn), metrics_fn):
    every, none = fn(params, ones), fn(params, zeros)
    some = jax.jit(fn)(params, masked(junk, mask))
    chex.assert_trees_all_close(some, fn(params, kept), rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_equal(every, fn(params, batch))
    chex.assert_trees_all_equal(none, jax.tree.map(jnp.zeros_like, none))
  rest = metrics_fn(params, masked(batch, ~mask))  # sums add up
  chex.assert_trees_all_close(jax.tree.map(jnp.add, some, rest), every)


@pytest.mark.parametrize('mean', [0.1, (0.1, 0.2, 0.3)], ids=['one', 'each'])
def test_bytes_are_scaled_and_floats_are_not(mean):
  """Catches a loss, or metrics, of bytes as they are."""
  x = np.arange(BATCH * WIDTH, dtype=np.uint8).reshape(BATCH, WIDTH) * 8
  scale = {'mean': mean, 'std': 0.5 if mean == 0.1 else (0.5, 0.6, 0.7)}
  scaled = (x / 255 - np.array(mean)) / np.array(scale['std'])
  as_floats = {'x': jnp.asarray(scaled, jnp.float32), 'y': jnp.arange(6) % 3}
  chex.assert_trees_all_equal(losses.inputs(as_floats, **scale), as_floats['x'])
  both = losses.make(IDENTITY, 'cross_entropy', **scale)
  for fn in (losses.classification(IDENTITY, **scale), *both):
    found = fn(ONE, as_floats | {'x': jnp.asarray(x)})
    chex.assert_trees_all_close(found, fn(ONE, as_floats), rtol=1e-5)


def test_a_mask_of_tokens_is_padding():
  """Catches a mask of tokens that is ignored, or taken for one of rows."""
  batch, mask = BATCHES['tokens'], RNG.random((BATCH, LENGTH)) < 0.5
  padded = {'x': batch['x'], 'y': np.where(mask, batch['y'], -1)}
  *both, params = functions('tokens')
  for fn in both:
    masked = fn(params, batch | {'token_mask': mask})
    chex.assert_trees_all_equal(masked, fn(params, padded))


def test_inputs_are_x_or_all_that_is_no_label():
  """Catches a mask of rows, or a label, among the inputs of a model."""
  batch = {'a': np.array([[255, 0]], np.uint8), 'b': np.ones((1, 2), int)}
  rest = {'y': np.ones(1), 'mask': np.ones(1)}
  found = losses.inputs(batch | rest)
  want = {'a': np.float32([[1, 0]]), 'b': batch['b']}
  chex.assert_trees_all_equal(found, want)
  assert losses.inputs(batch | rest | {'x': rest['y']}) is rest['y']


# Catches labels that are broadcast over outputs.
test_labels_of_another_shape_are_refused = refused(
  lambda x: losses.kind_of(x[0])(jnp.zeros(x[1:]), {'y': jnp.zeros(5, int)}),
  (('regression', 5, 1), "'y'"), (('multilabel', 5, 3), "'y'"),
  (('tokens', 5, 4, 3), "'y'"),
)  # fmt: skip
