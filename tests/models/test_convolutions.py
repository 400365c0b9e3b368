"""Convolutions, pools and residual networks: twins, slopes, shards."""

import itertools

import cases
import chex
from fl_sketch import models
from fl_sketch.models import layers
import jax
import jax.numpy as jnp
import numpy as np
from operators import two_shards
import pytest

from tests.models.test_models import (
  FORMS,
  convolved,
  in_form,
  normal,
  normals,
  shapes,
)


@pytest.mark.representatives('(5, 5)-1-SAME', '(5, 4)-2-VALID')
@pytest.mark.parametrize('padding', ['SAME', 'VALID'])
@pytest.mark.parametrize(
  ('size', 'stride'),
  [((5, 5), 1), ((1, 4), 1), ((3, 2), 1), ((5, 4), 2), ((5, 4), 3)],
  ids=str,
)
def test_tiles_are_the_lax_convolution_to_second_order(padding, size, stride):
  x, kernel = normal(0, 2, 9, 8, 2), normal(1, *size, 2, 3) / 5

  conv = lambda x, k: layers.conv2d(x, k, padding, stride=stride)
  loss = lambda x, k: jnp.sin(conv(x, k)).sum()
  # The gradient of a gradient's square: what attacks on gradients take.
  square = lambda x, k: jnp.square(jax.grad(loss, 1)(x, k)).sum()

  @jax.jit
  def derivatives(x, kernel):
    forms = []
    for form in FORMS:
      with in_form(form):
        first, second = (jax.grad(f, (0, 1))(x, kernel) for f in (loss, square))
        forms.append(((conv(x, kernel), first), second))
    return forms

  (tiles, second), (lax, lax_second) = derivatives(x, kernel)
  unstrided = (9, 8) if padding == 'SAME' else (10 - size[0], 9 - size[1])
  rows, cols = (-(-side // stride) for side in unstrided)
  chex.assert_shape(tiles[0], (2, rows, cols, 3))
  chex.assert_trees_all_close(tiles, lax, atol=1e-5)
  # Sums of terms of some hundreds, which cancel in places.
  largest = max(float(jnp.abs(x).max()) for x in lax_second)
  chex.assert_trees_all_close(
    second, lax_second, rtol=1e-4, atol=1e-6 * largest
  )


def test_max_pools_agree_on_ties_too_and_leave_nothing_out():
  """Catches gradients of ties that differ, and columns that are cut off."""
  values = np.random.default_rng(0).integers(0, 3, (2, 6, 4, 3))
  x = jnp.asarray(values, jnp.float32)
  forms = {}
  for form in FORMS:
    with in_form(form):
      y, pull = jax.vjp(layers.max_pool, x)
      forms[form] = y, pull(jnp.cos(y))
  chex.assert_trees_all_equal(forms['tiles'], forms['lax'])
  with pytest.raises(ValueError, match='cols'):
    layers.max_pool(jnp.zeros((1, 4, 5, 1)))


def test_the_backend_picks_the_form(monkeypatch):
  assert layers.tiled()
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  assert not layers.tiled()


@pytest.mark.representatives('tiles')
@pytest.mark.parametrize('form', FORMS)
def test_gradients_are_alike_under_vmap_and_scan_in_shards(form):
  """Catches a derivative that does not trace in a round, or mixes clients."""
  xs, kernel = normal(0, 4, 2, 4, 4, 1), normal(1, 3, 3, 1, 2)

  def loss(kernel, x):
    with in_form(form):
      y = layers.conv2d(x, kernel)
      return jnp.sin(layers.max_pool(y)).sum()

  grad = jax.grad(loss)

  def both(kernel, xs):
    kernel = jax.lax.pcast(kernel, 'shard', to='varying')
    scanned = jax.lax.map(lambda x: grad(kernel, x), xs)
    return jax.vmap(grad, (None, 0))(kernel, xs), scanned

  want = jnp.stack([grad(kernel, x) for x in xs])
  for found in cases.jit(two_shards(both))(kernel, xs):
    np.testing.assert_allclose(found, want, atol=1e-5)


def inputs():
  return normal(1, 3, 8, 8, 3)


def small(name='resnet8', **options):
  """Three blocks with parameters by NumPy: no initialiser is compiled."""
  options |= {'stages': (1, 1, 1), 'width': 8}
  module = models.make(name, 5, **options)
  return module, normals(shapes(module, (8, 8, 3)), 0.3)


def group_norm(p, x):
  grouped = x.reshape(*x.shape[:3], -1, 8)
  mean, var = (f((1, 2, 4), keepdims=True) for f in (grouped.mean, grouped.var))
  flat = ((grouped - mean) / np.sqrt(var + 1e-6)).reshape(x.shape)
  return flat * p['scale'] + p['bias']


def twin(p, x, bottleneck, stem_stride):
  """Three blocks and their shortcuts, from the paper."""
  numbers = itertools.count()

  def layer(x, stride):
    i = next(numbers)
    y = convolved(x, p[f'Conv_{i}']['kernel'], 'SAME', stride)
    y = np.asarray(y)  # which broadcasts
    return group_norm(p[f'GroupNorm_{i}'], y)

  h = np.maximum(layer(x, stem_stride), 0)
  for stride in (1, 2, 2):
    if bottleneck:  # the stride is the middle one's
      inner = np.maximum(layer(h, 1), 0)
      inner = layer(np.maximum(layer(inner, stride), 0), 1)
    else:
      inner = layer(np.maximum(layer(h, stride), 0), 1)
    same = inner.shape == h.shape
    h = np.maximum((h if same else layer(h, stride)) + inner, 0)
  assert next(numbers) == len(p) // 2  # every layer, and the head
  head = p['Dense_0']
  return h.mean((1, 2)) @ head['kernel'] + head['bias']


@pytest.mark.representatives('resnet8-2-tiles')
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize(('name', 'stem'), [('resnet8', 2), ('resnet101', 1)])
def test_is_its_numpy_twin(name, stem, form):
  """Catches a stride that is ignored, or another convolution's."""
  with in_form(form):
    module, params = small(name, stem_stride=stem)
    logits = jax.jit(module.apply)({'params': params}, inputs())
  params = jax.tree.map(np.float64, params)
  expected = twin(params, np.asarray(inputs()), name == 'resnet101', stem)
  np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=2e-3)
