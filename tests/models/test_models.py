"""Every model of images has its published size, and trains anywhere."""

import functools
from unittest import mock

import any_models
from fl_sketch import models
from fl_sketch.models import layers, losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

FORMS = 'tiles', 'lax'  # of convolutions and pools


def in_form(form):
  """A context in which the backend is one that has this form."""
  return mock.patch.object(layers, 'tiled', return_value=form == 'tiles')


def normal(seed, *shape):
  draws = np.random.default_rng(seed).normal(size=shape)
  return jnp.asarray(draws, jnp.float32)


def shapes(model, x_shape, x_dtype=jnp.float32):
  """Those of the parameters."""
  init = lambda key: models.init_params(model, key, x_shape, x_dtype)
  return jax.eval_shape(init, jax.random.key(0))


def normals(tree, scale, seed=0):
  """A tree of its shapes, drawn by NumPy: nothing is compiled."""
  rng = np.random.default_rng(seed)
  draw = lambda p: (scale * rng.normal(size=p.shape)).astype(np.float32)
  return jax.tree.map(draw, tree)


def draw_params(model, x_shape, x_dtype=jnp.float32):
  """Params drawn by NumPy: no initialiser has to be compiled."""
  return normals(shapes(model, x_shape, x_dtype), 0.2)


@pytest.mark.representatives(
  'resnet8-10-x_shape2-78042',
  'bert_tiny-2-x_shape8-4386178',
  'vit_tiny-1000-x_shape5-5717416',
  'lstm_shakespeare-90-x_shape12-820522',
  'lstm_stackoverflow-10004-x_shape13-4050748',
  'gpt2-50257-x_shape16-124439808',
)
@pytest.mark.parametrize(('name', 'classes', 'x_shape', 'count'), [
  ('lenet5', 10, (28, 28, 1), 61_706),
  ('smooth_lenet', 10, (28, 28, 1), 13_426),
  ('resnet8', 10, (32, 32, 3), 78_042),
  ('resnet18', 10, (32, 32, 3), 11_173_962),
  ('resnet101', 10, (32, 32, 3), 42_512_970),
  ('vit_tiny', 1000, (224, 224, 3), 5_717_416),
  ('vit_small', 1000, (224, 224, 3), 22_050_664),
  ('vit_base', 1000, (224, 224, 3), 86_567_656),
  # The last term is the head's.
  ('bert_tiny', 2, (128,), 4_385_920 + 129 * 2),
  ('bert_mini', 2, (128,), 11_170_560 + 257 * 2),
  ('bert_small', 2, (128,), 28_763_648 + 513 * 2),
  ('bert_base', 2, (128,), 109_482_240 + 769 * 2),
  ('lstm_shakespeare', 90, (80,), 820_522),
  # Words, four gates of one layer, the projection and the logits.
  ('lstm_stackoverflow', 10_004, (20,),
    10_004 * 96 + 4 * 670 * (96 + 670 + 1) + 671 * 96 + 97 * 10_004),
  ('gpt_mini', 65, (256,), 10_770_816),
  ('gpt_small', 50_257, (1024,), 124_439_808),
  ('gpt2', 50_257, (20,), 124_439_808),
  ('smollm2_135m', 49_152, (20,), 134_515_008),
  ('qwen2_500m', 151_936, (20,), 494_032_768),
  # By hand: blocks of four products of attention, the MLP's, and norms.
  ('vit_nano', 10, (32, 32, 3), 208_074),
  ('bert_nano', 2, (20,), 2_090_690),
  ('gpt_nano', 90, (80,), 110_976),
  ('gpt_micro', 90, (80,), 463872),
  ('llama_nano', 90, (80,), 98_240),
  ('gru', 90, (80,), 621866),
  ('emnist_cnn', 62, (28, 28, 1), 1_206_590),
])  # fmt: skip
def test_models_have_the_published_number_of_parameters(
  name, classes, x_shape, count
):
  x_dtype = jnp.float32 if name in models.OF_IMAGES else jnp.int32
  params = shapes(models.make(name, classes), x_shape, x_dtype)
  assert models.num_params(params) == count


@pytest.mark.nightly
def test_smooth_lenet_starts_uniform_between_halves():
  model = models.make('smooth_lenet', 10)
  params = models.init_params(model, jax.random.key(0), (8, 8, 1))
  for layer in params.values():
    for leaf in (layer['kernel'], layer['bias']):
      assert abs(leaf).max() <= 0.5
    # Of 300 numbers and more; beyond seven standard deviations of the mean.
    assert abs(3 * np.square(2 * layer['kernel']).mean() - 1) < 0.4


@pytest.mark.nightly
def test_a_vit_resizes_images_between_the_centres_of_pixels():
  """Catches pixels that stand at corners, and a size of the file's images."""
  make = functools.partial(models.make, 'vit_nano', 3, depth=1)
  plain, resized = make(), make(side=8)
  params, x = draw_params(resized, (4, 4, 3)), normal(0, 2, 4, 4, 3)
  at = np.clip((np.arange(8) + 0.5) / 2 - 0.5, 0, 3)
  weights = np.stack([np.interp(at, np.arange(4), one) for one in np.eye(4)], 1)
  larger = np.einsum('ai,bj,nijc->nabc', weights, weights, x)
  apply = lambda module, x: module.apply({'params': params}, x)
  want = apply(plain, larger.astype(np.float32))
  np.testing.assert_allclose(apply(resized, x), want, rtol=1e-4, atol=1e-4)


def convolved(x, kernel, padding, stride=1):
  """Those of XLA."""
  return jax.lax.conv_general_dilated(
    x, kernel, (stride, stride), padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )  # fmt: skip


@pytest.mark.nightly
def test_the_cnn_of_emnist_is_that_of_plain_layers():
  """Catches a layer that is missing, and dropout in evaluation."""
  cnn = models.make('emnist_cnn', 3)
  params, x = draw_params(cnn, (12, 12, 1)), normal(1, 4, 12, 12, 1)
  h = x
  for name in 'Conv_0', 'Conv_1':
    layer = params[name]
    h = convolved(h, layer['kernel'], 'VALID')
    h = jax.nn.relu(h + layer['bias'].reshape(1, 1, 1, -1))
  h = h.reshape(4, 4, 2, 4, 2, 64).max((2, 4)).reshape(4, -1)
  dense = lambda p, h: h @ p['kernel'] + p['bias'][None]
  want = dense(params['Dense_1'], jax.nn.relu(dense(params['Dense_0'], h)))
  apply = models.as_model(cnn).apply
  np.testing.assert_allclose(apply(params, x, None), want, rtol=1e-4, atol=1e-4)
  one, other = (apply(params, x, jax.random.key(i)) for i in range(2))
  assert abs(one - want).max() > 0.1 < abs(one - other).max()


@pytest.mark.parametrize('activation', ['relu', 'tanh'])
def test_mlp_is_its_numpy_twin(activation):
  mlp = models.make('mlp', 3, widths=(5,), activation=activation)
  params, x = draw_params(mlp, (3, 2)), normal(1, 2, 3, 2)
  dense = lambda p, h: h @ np.asarray(p['kernel']) + np.asarray(p['bias'])
  h = dense(params['Dense_0'], np.asarray(x).reshape(2, 6))
  h = np.tanh(h) if activation == 'tanh' else np.maximum(h, 0)
  y = np.asarray(mlp.apply({'params': params}, x))
  np.testing.assert_allclose(y, dense(params['Dense_1'], h), rtol=1e-5)


# Catches sizes that are rounded, inputs that are cut, and pixels as tokens.
test_what_does_not_fit_is_refused = refused(
  lambda case: shapes(models.make(case[0], 10, **case[1]), *case[2:]),
  (('vit_nano', {'dtype': 'float16'}, (4, 4, 3)), 'dtype'),
  (('smooth_lenet', {}, (64,)), 'ndim'),
  (('gru', {'vocab_size': 9}, (4,), int), 'vocab_size'),
  (('gru', {}, (4, 1), int), 'ndim'),
  (('bert_nano', {'max_length': 3}, (4,), int), 'max_length'),
  (('bert_nano', {}, (4,)), 'dtype'),
  (('gpt_nano', {'max_length': 3}, (4,), int), 'max_length'),
)  # fmt: skip
LOWERED = {
  **any_models.FAMILIES, **any_models.CASES,
  'lenet5 lax': any_models.of_images('lenet5'),
  'vit bfloat16': any_models.of_images('vit_nano', dtype='bfloat16'),
}  # fmt: skip


@pytest.mark.representatives('lenet5 lax', 'llama')
@pytest.mark.parametrize('name', LOWERED)
def test_gradients_lower_for_accelerators(name):
  """Catches a primitive that a GPU or TPU does not have."""
  case = LOWERED[name]
  batch = case.arrays(np.random.default_rng(0), (2,))
  init = lambda: any_models.start(case)[0]
  loss_fn = losses.make(case.model, case.kind)[0]
  grad = jax.jit(jax.grad(loss_fn))
  args = jax.eval_shape(init), batch
  with in_form('lax' if name.endswith('lax') else 'tiles'):
    exported = jax.export.export(grad, platforms=['tpu', 'cuda'])(*args)
  assert exported.platforms == ('tpu', 'cuda')
