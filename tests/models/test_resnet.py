"""ResNets: sizes by hand, a NumPy twin, samples that do not see each other."""

import itertools

import chex
from fl_sketch import models
from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest

IMAGE = jnp.zeros((1, 32, 32, 3))


def inputs(batch=3):
  draws = np.random.default_rng(1).standard_normal((batch, 8, 8, 3))
  return jnp.asarray(draws, jnp.float32)


def small(name='resnet8', **options):
  """Three blocks with parameters by NumPy: no initialiser is compiled."""
  options |= {'stages': (1, 1, 1), 'width': 8}
  module = models.make(name, 5, **options)
  shapes = jax.eval_shape(module.init, jax.random.key(0), inputs())['params']
  rng = np.random.default_rng(0)
  draw = lambda p: (0.3 * rng.standard_normal(p.shape)).astype(np.float32)
  return module, jax.tree.map(draw, shapes)


def size(width, stages, bottleneck):
  """Layer by layer: convolutions without a bias, two numbers a channel."""
  total, channels = 27 * width + 2 * width, width
  for i, blocks in enumerate(stages):
    inner = width * 2**i
    out = inner * (4 if bottleneck else 1)
    for _ in range(blocks):
      if bottleneck:
        total += channels * inner + 9 * inner**2 + inner * out
        total += 2 * (inner + inner + out)
      else:
        total += 9 * channels * inner + 9 * inner**2 + 4 * inner
      if channels != out:
        total += channels * out + 2 * out
      channels = out
  return total + 10 * (channels + 1)


@pytest.mark.parametrize(
  ('name', 'expected'),
  [
    ('resnet8', size(16, (1, 1, 1), False)),
    ('resnet18', size(64, (2, 2, 2, 2), False)),
    ('resnet101', size(64, (3, 4, 23, 3), True)),
  ],
)
def test_parameters_are_those_counted_by_hand(name, expected):
  module = models.make(name, 10)
  made = jax.eval_shape(module.init, jax.random.key(0), IMAGE)
  assert models.num_params(made) == expected
  assert list(made) == ['params']


def test_a_sample_does_not_see_the_others():
  module, params = small()
  x = inputs()
  logits = jax.jit(lambda x: module.apply({'params': params}, x))
  alone = jnp.concatenate([logits(x[i : i + 1]) for i in range(3)])
  chex.assert_trees_all_close(logits(x), alone, atol=1e-3)


def test_bfloat16_is_near_and_gradients_are_finite():
  found = {}
  for dtype in ('float32', 'bfloat16'):
    module, params = small(dtype=dtype)
    loss = losses.classification(module)
    batch = {'x': inputs(), 'y': jnp.array([0, 1, 2])}
    found[dtype] = jax.jit(jax.value_and_grad(loss))(params, batch)
    chex.assert_tree_all_finite(found[dtype])
  value, near = found['float32'][0], found['bfloat16'][0]
  assert abs(value - near) < 0.1 * abs(value)


def group_norm(p, x):
  grouped = x.reshape(*x.shape[:3], -1, 8)
  mean, var = (f((1, 2, 4), keepdims=True) for f in (grouped.mean, grouped.var))
  flat = ((grouped - mean) / np.sqrt(var + 1e-6)).reshape(x.shape)
  return flat * p['scale'] + p['bias']


def convolved(kernel, x, stride):
  side, before = kernel.shape[0], x.shape[1]
  after = -(-before // stride)
  pad = max((after - 1) * stride + side - before, 0)
  pads = (pad // 2, pad - pad // 2)
  x = np.pad(x, ((0, 0), pads, pads, (0, 0)))
  y = np.zeros((len(x), after, after, kernel.shape[-1]))
  for i in range(after):
    for j in range(after):
      rows = slice(i * stride, i * stride + side)
      columns = slice(j * stride, j * stride + side)
      y[:, i, j] = np.einsum('bhwc,hwcf->bf', x[:, rows, columns], kernel)
  return y


def twin(p, x, bottleneck):
  """Three blocks and their shortcuts, from the paper."""
  numbers = itertools.count()

  def layer(x, stride):
    i = next(numbers)
    y = convolved(p[f'Conv_{i}']['kernel'], x, stride)
    return group_norm(p[f'GroupNorm_{i}'], y)

  h = np.maximum(layer(x, 1), 0)
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


@pytest.mark.parametrize('form', ['tiles', 'lax'])
@pytest.mark.parametrize('name', ['resnet8', 'resnet101'])
def test_is_its_numpy_twin(name, form):
  module, params = small(name, form=form)
  found = jax.jit(module.apply)({'params': params}, inputs())
  params = jax.tree.map(np.float64, params)
  expected = twin(params, np.asarray(inputs()), bottleneck=name == 'resnet101')
  np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def test_a_stem_of_stride_2_costs_a_quarter():
  params, counted = {'params': small()[1]}, []
  for stride in (1, 2):
    module, _ = small(stem_stride=stride)  # of the same parameters
    lowered = jax.jit(module.apply).lower(params, inputs())
    cost = lowered.cost_analysis()
    assert cost is not None
    counted.append(cost['flops'])
  assert 3 < counted[0] / counted[1] < 4.5


def test_images_without_channels_are_refused():
  module = models.make('resnet8', 10)
  with pytest.raises(ValueError, match=r'x_BxHxWxC.ndim=2 == 4'):
    jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((8, 8)))
  with pytest.raises(ValueError, match="option='patch' of model 'resnet8'"):
    models.make('resnet8', 10, patch=4)


@pytest.mark.parametrize(
  ('width', 'error', 'message'),
  [
    (12, ValueError, 'Expected width=12 to be a multiple of 8'),
    (0, ValueError, 'Expected width=0 >= 1'),
    (8.5, TypeError, 'Expected width to be an integer'),
  ],
)
def test_widths_without_whole_groups_are_refused(width, error, message):
  with pytest.raises(error, match=message):
    models.make('resnet8', 10, width=width)
