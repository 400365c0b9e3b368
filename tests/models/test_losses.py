"""Losses against NumPy twins; what masks and sums over batches must satisfy."""

import chex
from fl_sketch import models
from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest

MODEL = models.make('linear', 4)
RNG = np.random.default_rng(0)


def normal(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


PARAMS = {'dense': {'kernel': normal(5, 4), 'bias': normal(4)}}
QUADRATIC = {'w': jnp.array([1.0, -2.0, 0.5])}
CLASSES = {'x': normal(6, 5), 'y': jnp.arange(6) % 4}
SQUARES = {'factor': normal(6, 3, 2), 'optimum': normal(6, 3)}

CROSS_ENTROPY = losses.make(MODEL, 'cross_entropy')[1], PARAMS, CLASSES
SMOOTH = losses.classification(MODEL, label_smoothing=0.2)
CASES = {
  'classification': (losses.classification(MODEL), *CROSS_ENTROPY),
  'smooth': (SMOOTH, *CROSS_ENTROPY),
  'quadratic': (
    losses.quadratic(), losses.quadratic_metrics, QUADRATIC, SQUARES,
  ),
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
  batch = CLASSES
  loss_fn = losses.classification(MODEL, label_smoothing=label_smoothing)
  x, y = np.asarray(batch['x']), np.asarray(batch['y'])
  expected = cross_entropy_twin(PARAMS, x, y, label_smoothing).mean()
  np.testing.assert_allclose(loss_fn(PARAMS, batch), expected, rtol=1e-5)


@pytest.mark.parametrize('label_smoothing', [0.0, 0.1])
def test_soft_labels_are_hard_ones_and_what_lies_between(label_smoothing):
  loss_fn = losses.classification(MODEL, label_smoothing=label_smoothing)
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


@pytest.mark.representatives('quadratic')
@each_case
def test_masked_rows_are_as_if_absent(case):
  """With a mask of ones the numbers are the same, of zeros they are 0."""
  loss_fn, metrics_fn, params, batch = case
  mask = np.array([1, 0, 1, 1, 0, 0], bool)
  junk = jax.tree.map(lambda leaf: leaf.at[1].set(77), batch)
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


@each_case
def test_metrics_add_up_over_batches(case):
  _, metrics_fn, params, batch = case
  metrics_fn = jax.jit(metrics_fn)
  whole = metrics_fn(params, batch)
  parts = [metrics_fn(params, rows(batch, s)) for s in (np.s_[:2], np.s_[2:])]
  chex.assert_trees_all_close(jax.tree.map(jnp.add, *parts), whole, rtol=1e-5)
  assert whole['count'] == 6


def test_metrics_are_without_label_smoothing_and_count_right_answers():
  batch = CLASSES
  sums = losses.make(MODEL, 'cross_entropy')[1](PARAMS, batch)
  loss = losses.classification(MODEL)(PARAMS, batch)
  np.testing.assert_allclose(sums['loss'] / sums['count'], loss, rtol=1e-6)
  logits = np.asarray(MODEL.apply({'params': PARAMS}, batch['x']))
  assert sums['accuracy'] == np.sum(logits.argmax(-1) == np.asarray(batch['y']))


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
  metrics = lambda *args, **scale: losses.make(*args, 'cross_entropy', **scale)[
    1
  ]
  for make in (losses.classification, metrics):
    fn = make(MODEL, **scale)
    chex.assert_trees_all_close(
      fn(PARAMS, as_bytes), fn(PARAMS, as_floats), rtol=1e-6
    )


@pytest.mark.parametrize('label_smoothing', [-0.1, 1.0])
def test_wrong_label_smoothing_is_refused(label_smoothing):
  with pytest.raises(ValueError, match='Expected 0 <= label_smoothing='):
    losses.classification(MODEL, label_smoothing=label_smoothing)
