"""LoRA is the model at first, spans all updates, and costs what it should."""

import functools

import cases
import chex
from fl_sketch import models
from fl_sketch.models import lora, losses
from flax import nnx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from tests.models.test_models import normals, shapes

KEY = jax.random.key(7)
TOKENS = {'vocab_size': 20, 'max_length': 6}
# Of the registry: name -> options, shape and type of a sample.
MODELS = {
  'mlp': ({'widths': (6,)}, (4, 4, 1), jnp.float32),
  'vit_nano': ({'depth': 1, 'width': 8, 'heads': 2}, (8, 8, 3), jnp.float32),
  'bert_nano': (TOKENS | {'depth': 1, 'width': 8}, (6,), jnp.int32),
}


def drawn(name):
  """A model, its parameters and a batch."""
  options, shape, dtype = MODELS[name]
  module = models.make(name, 3, **options)
  params = normals(shapes(module, shape, dtype), 0.2)
  x = np.random.default_rng(1).integers(0, 9, (5, *shape)).astype(dtype)
  return module, params, {'x': jnp.asarray(x), 'y': jnp.arange(5) % 3}


def moved(tree):
  """The tree a step of noise further."""
  noise = lambda x: x + 0.1 * jax.random.normal(KEY, x.shape)
  return jax.tree.map(noise, tree)


def whole(parts, trainable=None):
  trainable = parts.trainable if trainable is None else trainable
  return lora.join(parts.frozen, trainable)


@pytest.mark.parametrize('kind', lora.KINDS)
def test_before_training_it_is_the_model_bit_for_bit(kind):
  """Catches a B that is not 0, arrays that both trees have, shapes drawn."""
  _, params, _ = drawn('mlp')
  parts = lora.make(kind=kind, params=params, key=KEY, rank=2, alpha=5.0)
  chex.assert_trees_all_equal(lora.merge(whole(parts), parts.scale), params)
  sizes = [
    sum(x.size for x in jax.tree.leaves(tree))
    for tree in (parts.trainable, parts.frozen, whole(parts))
  ]
  assert sizes[0] + sizes[1] == sizes[2] > 0
  assert parts.scale == 2.5
  like = jax.eval_shape(lambda: params)
  split = lora.make(kind=kind, params=like, key=KEY, rank=2)
  chex.assert_trees_all_equal_shapes_and_dtypes(split[:2], parts[:2])


@pytest.mark.parametrize('shape', [(5, 3), (3, 5), (4, 4)])
def test_a_full_rank_spans_every_update(shape):
  """By the factors of an SVD; catches a scale, a rank, or a transpose."""
  rng = np.random.default_rng(0)
  kernel, update = rng.standard_normal((2, *shape)).astype(np.float32)
  rank = min(shape)
  parts = lora.lora({'kernel': kernel}, KEY, rank=rank, alpha=3.0)
  u, sizes, v = np.linalg.svd(update, full_matrices=False)
  factors = lora.Adapter(None, u * sizes, v / parts.scale)
  like = parts.trainable['kernel']
  assert jax.tree.map(np.shape, factors) == jax.tree.map(np.shape, like)
  merged = lora.merge(whole(parts, {'kernel': factors}), parts.scale)
  np.testing.assert_allclose(merged['kernel'], kernel + update, atol=1e-5)


def test_a_is_gaussian_of_variance_one_over_inputs():
  """Catches the variance of outputs, or of the rank."""
  parts = lora.lora({'kernel': jnp.zeros((400, 50))}, KEY, rank=32)
  a = np.asarray(parts.trainable['kernel'].a)
  # 0.0125 is the deviation of a mean of 12,800 squares: 1e-8 to miss 6 of it.
  assert abs(400 * np.mean(a**2) - 1) < 6 * 0.0125
  two = {k: jnp.zeros((400, 50)) for k in 'ab'}
  two = lora.lora(two, KEY, rank=2, targets=('*',)).trainable
  assert not np.allclose(two['a'].a, two['b'].a)


def check_factored(loss_fn, parts, batch):
  """Value and gradient are those of merged kernels."""
  both = [
    cases.jit(jax.value_and_grad(lambda x, fn=fn: fn(whole(parts, x), batch)))
    for fn in (
      lora.factored(loss_fn, parts.scale),
      lambda tree, batch: loss_fn(lora.merge(tree, parts.scale), batch),
    )
  ]
  factored, merged = (fn(moved(parts.trainable)) for fn in both)
  chex.assert_trees_all_close(factored, merged, atol=2e-5)


@pytest.mark.representatives('mlp')
@pytest.mark.parametrize('name', ['mlp', 'vit_nano', 'bert_nano'])
def test_factors_in_layers_are_merged_kernels(name):
  """Catches a factor that a layer does not see, or sees twice."""
  module, params, batch = drawn(name)
  parts = lora.lora(
    params, KEY, rank=2, alpha=3.0, trainable=('head*',) * (name != 'mlp'),
    targets=('Dense_*',) if name == 'mlp' else ('block_0', 'attention/query'),
  )  # fmt: skip
  check_factored(losses.make(module, 'cross_entropy')[0], parts, batch)


class Tied(nn.Module):
  """A kernel that a layer uses twice, and that the outputs are read by."""

  @nn.compact
  def __call__(self, x):
    layer = nn.Dense(4, name='layer')
    x = layer(nn.tanh(layer(x)))
    return x @ layer.variables['params']['kernel'].T


@pytest.mark.parametrize(
  'module', [Tied(), lambda rngs: nnx.Linear(4, 3, rngs=rngs)], ids='01'
)
def test_kernels_that_no_layer_shows_are_merged(module):
  """Catches factors that are lost where a kernel is read in another way."""
  model = models.as_model(module)
  batch = {'x': jax.random.normal(KEY, (5, 4)), 'y': jnp.arange(5) % 3}
  params = model.init(KEY, batch['x'])
  parts = lora.lora(params, KEY, rank=2, alpha=3.0)
  check_factored(losses.make(model, 'cross_entropy')[0], parts, batch)


@pytest.mark.representatives('bfloat16')
@pytest.mark.parametrize('name', ['float32', 'bfloat16'])
def test_clients_share_the_kernels_of_layers(name):
  """Catches a merged kernel, or its gradient, for each of 32 clients."""
  module = models.MLP(3, widths=(256,), dtype=name)
  params = models.init_params(module, KEY, (256,))
  parts = lora.lora(params, KEY, rank=2, targets=('Dense_0',))
  loss_fn = lora.factored(losses.make(module, 'cross_entropy')[0], parts.scale)
  one = lambda frozen, x, batch: jax.grad(
    lambda x: loss_fn(lora.join(frozen, x), batch)
  )(x)
  clients = lambda tree: jax.tree.map(lambda x: jnp.stack([x] * 32), tree)
  batch = {'x': jnp.ones((1, 256)), 'y': jnp.zeros(1, jnp.int32)}
  fn = cases.jit(jax.vmap(one, (None, 0, 0)))
  args = parts.frozen, clients(parts.trainable), clients(batch)
  used = fn.lower(*args).compile().memory_analysis()
  assert used.temp_size_in_bytes < 2 * 4 * 256**2


ZEROS = functools.partial(np.zeros, dtype=np.float32)
PARAMS = {
  'block_0': {'query': {'kernel': ZEROS((4, 4)), 'bias': ZEROS(4)}},
  'block_1': {'query': {'kernel': ZEROS((4, 4)), 'bias': ZEROS(4)}},
  'words': ZEROS((9, 4)),
  'head': {'kernel': ZEROS((4, 2)), 'bias': ZEROS(2)},
}


@pytest.mark.parametrize(('options', 'adapted', 'whole'), [
  ({}, ['block_0/query', 'block_1/query', 'head/kernel'], 0),
  ({'targets': ('block_1/query',)}, ['block_1/query'], 0),
  ({'targets': ['block_*']}, ['block_0/query', 'block_1/query'], 0),
  ({'targets': ('query',), 'trainable': ('head',)},
    ['block_0/query', 'block_1/query'], 2),
  ({'targets': ('words',), 'trainable': ('bias',)}, ['words'], 3),
])  # fmt: skip
def test_patterns_match_parts_of_paths_that_follow_one_another(
  options, adapted, whole
):
  """Catches a pattern that matches half a name, or biases as kernels."""
  parts = lora.lora(PARAMS, KEY, rank=1, **options)
  found = jax.tree.leaves_with_path(parts.trainable, is_leaf=lora.is_adapter)
  names = [
    jax.tree_util.keystr(path[:2], simple=True, separator='/')
    for path, x in found
    if lora.is_adapter(x)
  ]
  assert (names, len(found) - len(names)) == (adapted, whole)


test_what_does_not_fit_the_model_is_refused_by_name = refused(
  lambda options: lora.lora(PARAMS, KEY, **{'rank': 1} | options),
  ({'targets': ('bias',)}, 'targets'), ({'trainable': ('tail',)}, 'trainable'),
  ({'targets': ()}, 'targets'), ({'rank': 3}, 'rank'),
)  # fmt: skip
