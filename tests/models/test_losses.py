"""Losses by kind: NumPy twins, padding, and sums that add up."""

import chex
from fl_sketch import models
from fl_sketch.models import Model, losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest

MODEL = models.make('linear', 4)
RNG = np.random.default_rng(0)
# Its outputs are the inputs, so that batches hold them.
IDENTITY = Model(lambda key, x: {}, lambda params, x, key: x)
BATCH, LENGTH, WIDTH = 6, 4, 3


def normal(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def integers(low, high, *shape):
  return RNG.integers(low, high, (BATCH, *shape)).astype(np.int32)


def own(outputs, batch):
  """Sums over as many terms of a sample as its label says."""
  return {'loss': outputs * batch['y'], 'terms': batch['y']}


BATCHES = {
  'cross_entropy': {'x': normal(BATCH, WIDTH), 'y': integers(0, WIDTH)},
  'tokens': {
    'x': normal(BATCH, LENGTH, WIDTH), 'y': integers(-2, WIDTH, LENGTH),
  },
  'multilabel': {'x': normal(BATCH, WIDTH), 'y': integers(0, 2, WIDTH)},
  'regression': {'x': normal(BATCH, 2, 2), 'y': normal(BATCH, 2, 2)},
  'own': {'x': normal(BATCH), 'y': integers(1, 4).astype(np.float32)},
}  # fmt: skip


def functions(kind):
  return losses.make(IDENTITY, own if kind == 'own' else kind)


PARAMS = {'dense': {'kernel': normal(5, 4), 'bias': normal(4)}}
QUADRATIC = {'w': jnp.array([1.0, -2.0, 0.5])}
CLASSES = {'x': normal(6, 5), 'y': jnp.arange(6) % 4}
SQUARES = {'factor': normal(6, 3, 2), 'optimum': normal(6, 3)}

SMOOTH = losses.classification(MODEL, label_smoothing=0.2)
METRICS = losses.make(MODEL, 'cross_entropy')[1]
CASES = {
  'smooth': (SMOOTH, METRICS, PARAMS, CLASSES),
  'quadratic': (
    losses.quadratic(), losses.quadratic_metrics, QUADRATIC, SQUARES,
  ),
  **{kind: (*functions(kind), {}, BATCHES[kind]) for kind in BATCHES},
}  # fmt: skip
each_case = pytest.mark.parametrize('case', CASES.values(), ids=CASES.keys())


def rows(batch, index):
  return jax.tree.map(lambda leaf: np.asarray(leaf)[index], batch)


def masked(batch, mask):
  return batch | {'mask': jnp.asarray(mask)}


def cross_entropy_twin(params, x, y, label_smoothing):
  dense = jax.tree.map(lambda p: np.asarray(p, float), params['dense'])
  logits = np.asarray(x, float) @ dense['kernel'] + dense['bias']
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  targets = np.full(p.shape, label_smoothing / p.shape[-1])
  targets[np.arange(len(y)), y] += 1 - label_smoothing
  return -(targets * np.log(p)).sum(-1)


@pytest.mark.covers('S4-AppD')
@pytest.mark.parametrize('label_smoothing', [0.0, 0.1, 0.9])
def test_cross_entropy_is_its_numpy_twin(label_smoothing):
  loss_fn = losses.classification(MODEL, label_smoothing=label_smoothing)
  x, y = np.asarray(CLASSES['x']), np.asarray(CLASSES['y'])
  expected = cross_entropy_twin(PARAMS, x, y, label_smoothing).mean()
  np.testing.assert_allclose(loss_fn(PARAMS, CLASSES), expected, rtol=1e-5)


def test_soft_labels_are_hard_ones_and_what_lies_between():
  loss_fn = losses.classification(MODEL, label_smoothing=0.1)
  x, y = CLASSES['x'], CLASSES['y']
  of = lambda labels: loss_fn(PARAMS, {'x': x, 'y': labels})
  ones = lambda labels: jax.nn.one_hot(labels, 4)
  other = (y + 1) % 4
  np.testing.assert_allclose(of(ones(y)), of(y), rtol=1e-6)
  between = of(0.7 * ones(y) + 0.3 * ones(other))
  np.testing.assert_allclose(between, 0.7 * of(y) + 0.3 * of(other), rtol=1e-5)


def test_quadratic_is_its_numpy_twin():
  batch = SQUARES
  w = np.asarray(QUADRATIC['w'])
  values = [
    np.sum((np.asarray(a).T @ (w - np.asarray(b))) ** 2) / 2
    for a, b in zip(batch['factor'], batch['optimum'], strict=True)
  ]
  loss = losses.quadratic()(QUADRATIC, batch)
  np.testing.assert_allclose(loss, np.mean(values), rtol=1e-5)
  sums = losses.quadratic_metrics(QUADRATIC, batch)
  np.testing.assert_allclose(sums['loss'], np.sum(values), rtol=1e-5)
  assert sums['count'] == 6


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


@pytest.mark.parametrize('kind', BATCHES)
def test_a_kind_is_its_numpy_twin(kind):
  """A mean over padding, or over samples where it is of tokens."""
  loss_fn, metrics_fn = functions(kind)
  want, batch = by_hand(kind), BATCHES[kind]
  sums = metrics_fn({}, batch)
  count = sums.pop('count')
  means = {name: total / count for name, total in sums.items()}
  chex.assert_trees_all_close(means, want, rtol=1e-5)
  np.testing.assert_allclose(loss_fn({}, batch), want['loss'], rtol=1e-5)


@pytest.mark.representatives('quadratic', 'tokens')
@each_case
def test_masked_rows_are_as_if_absent(case):
  """With a mask of ones the numbers are the same, of zeros they are 0."""
  loss_fn, metrics_fn, params, batch = case
  mask = np.array([1, 0, 1, 1, 0, 0], bool)
  junk = jax.tree.map(lambda leaf: jnp.asarray(leaf).at[1].set(77), batch)
  kept = rows(batch, np.flatnonzero(mask))
  ones, zeros = (masked(batch, np.full(6, x)) for x in (True, False))
  for fn in (jax.value_and_grad(loss_fn), metrics_fn):
    every, none = fn(params, ones), fn(params, zeros)
    some = jax.jit(fn)(params, masked(junk, mask))
    chex.assert_trees_all_close(some, fn(params, kept), rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_equal(every, fn(params, batch))
    chex.assert_trees_all_equal(none, jax.tree.map(jnp.zeros_like, none))


def test_a_mask_of_numbers_weighs():
  loss_fn, batch = losses.quadratic(), SQUARES
  values = [loss_fn(QUADRATIC, rows(batch, [i])) for i in range(6)]
  mask = np.array([2, 0, 1, 0.5, 0, 0], np.float32)
  loss = loss_fn(QUADRATIC, masked(batch, mask))
  np.testing.assert_allclose(loss, np.average(values, weights=mask), rtol=1e-5)


@pytest.mark.representatives('quadratic', 'tokens')
@each_case
def test_metrics_add_up_over_batches(case):
  _, metrics_fn, params, batch = case
  metrics_fn = jax.jit(metrics_fn)
  whole = metrics_fn(params, batch)
  parts = [metrics_fn(params, rows(batch, s)) for s in (np.s_[:2], np.s_[2:])]
  chex.assert_trees_all_close(jax.tree.map(jnp.add, *parts), whole, rtol=1e-5)


@pytest.mark.parametrize('mean', [0.1, (0.1, 0.2, 0.3)], ids=['one', 'each'])
def test_bytes_are_scaled_and_floats_are_not(mean):
  bytes_ = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3) * 10
  std = 0.5 if isinstance(mean, float) else (0.5, 0.6, 0.7)
  x = losses.preprocess(jnp.asarray(bytes_), mean, std)
  assert x.dtype == jnp.float32
  expected = (bytes_ / 255 - np.array(mean)) / np.array(std)
  np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)
  chex.assert_trees_all_equal(losses.preprocess(x, mean, std), x)


def test_loss_and_metrics_standardise_bytes():
  bytes_ = jnp.arange(30, dtype=jnp.uint8).reshape(6, 5) * 8
  y = jnp.arange(6) % 4
  scale = {'mean': 0.3, 'std': 0.2}
  as_bytes = {'x': bytes_, 'y': y}
  as_floats = {'x': losses.preprocess(bytes_, **scale), 'y': y}
  both = losses.make(MODEL, 'cross_entropy', **scale)
  for fn in (losses.classification(MODEL, **scale), *both):
    found, want = fn(PARAMS, as_bytes), fn(PARAMS, as_floats)
    chex.assert_trees_all_close(found, want, rtol=1e-6)


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


@pytest.mark.parametrize(('kind', 'outputs'), [
  ('regression', (5, 1)), ('multilabel', (5, 3)), ('tokens', (5, 4, 3)),
])  # fmt: skip
def test_labels_of_another_shape_are_refused(kind, outputs):
  """Catches labels that are broadcast over outputs."""
  with pytest.raises(ValueError, match="'y'"):
    losses.kind_of(kind)(jnp.zeros(outputs), {'y': jnp.zeros(5, int)})


def test_a_label_smoothing_of_one_is_refused():
  """Catches targets that are no distribution."""
  with pytest.raises(ValueError, match='label_smoothing'):
    losses.classification(MODEL, label_smoothing=1.0)
