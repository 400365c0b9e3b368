"""Vision transformers and BERT: against NumPy twins, and by their laws."""

import functools
import math

import cases
import chex
from fl_sketch import models
from fl_sketch.models import transformer
import jax
import jax.numpy as jnp
import numpy as np
from operators import two_shards
import pytest

from tests.models.test_models import shapes

OPTIONS = {
  'vit_nano': {'width': 8, 'depth': 2, 'heads': 2, 'patch': 2},
  'bert_nano': {'width': 8, 'vocab_size': 20, 'max_length': 6},
}
INPUTS = {
  'vit_nano': np.random.default_rng(0).normal(size=(3, 4, 6, 3)).astype('f4'),
  'bert_nano': np.array(
    [[2, 7, 9, 3, 0, 0], [2, 3, 0, 0, 0, 0], [2, 5, 5, 19, 8, 3]], np.int32
  ),
}
each_model = pytest.mark.parametrize('name', OPTIONS)


def make(name, classes=3, **options):
  return models.make(name, classes, **(OPTIONS[name] | options))


def draw_params(name):
  """Params drawn by NumPy, no bias zero and no scale one."""
  x, rng = INPUTS[name], np.random.default_rng(1)
  params = shapes(make(name), x.shape[1:], x.dtype)
  draw = lambda p: (0.5 * rng.normal(size=p.shape)).astype(np.float32)
  return jax.tree.map(draw, params)


@functools.cache
def program(name):
  return cases.jit(lambda params, x: make(name).apply({'params': params}, x))


def logits(name, params, x):
  return program(name)(params, x)


@pytest.mark.nightly
@pytest.mark.smoke
def test_gelu_and_its_slope_in_shards_are_those_of_jax():
  """JAX 0.12 cannot derive its own exact GELU inside `shard_map`."""
  x = jnp.linspace(-5, 5, 64).reshape(2, 32)
  slope = lambda f: jax.vmap(jax.vmap(jax.value_and_grad(f)))
  want = slope(lambda x: jax.nn.gelu(x, approximate=False))(x)
  ours = two_shards(slope(transformer.gelu), split=(True,))
  chex.assert_trees_all_close(ours(x), want, rtol=1e-6)


def dense(p, x):
  return x @ p['kernel'] + p['bias']


def norm(p, x):
  centred = x - x.mean(-1, keepdims=True)
  variance = np.square(centred).mean(-1, keepdims=True)
  return p['scale'] * centred / np.sqrt(variance + 1e-12) + p['bias']


def attention(p, x, heads):
  """Of one sequence f64[length, width], a loop over heads and positions."""
  query, key, value = (dense(p[n], x) for n in ('query', 'key', 'value'))
  attended, size = np.zeros_like(x), x.shape[1] // heads
  for h in range(heads):
    columns = slice(h * size, (h + 1) * size)
    for i in range(len(x)):
      scores = np.exp(key[:, columns] @ query[i, columns] / math.sqrt(size))
      weights = scores / scores.sum()
      attended[i, columns] = weights @ value[:, columns]
  return dense(p['out'], attended)


def mlp(p, x):
  h = dense(p['mlp_in'], x)
  h *= (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2
  return dense(p['mlp_out'], h)


def vit_twin(p, image):
  rows, cols, _ = image.shape
  tokens = [p['class_token'][0]]
  for i in range(0, rows, 2):
    for j in range(0, cols, 2):
      tokens.append(dense(p['patches'], image[i : i + 2, j : j + 2].ravel()))
  x = np.stack(tokens) + p['positions']
  for i in range(2):
    b = p[f'block_{i}']
    x = x + attention(b['attention'], norm(b['norm_attention'], x), 2)
    x = x + mlp(b, norm(b['norm_mlp'], x))
  return dense(p['head'], norm(p['norm'], x)[0])


def bert_twin(p, tokens):
  tokens = tokens[tokens > 0]  # what is padded away might as well not be there
  x = p['words'][tokens] + p['positions'][: len(tokens)] + p['token_types'][0]
  x = norm(p['norm'], x)
  for i in range(2):
    b = p[f'block_{i}']
    x = norm(b['norm_attention'], x + attention(b['attention'], x, 2))
    x = norm(b['norm_mlp'], x + mlp(b, x))
  return dense(p['head'], np.tanh(dense(p['pooler'], x[0])))


def check_twin(name, params):
  twin = {'vit_nano': vit_twin, 'bert_nano': bert_twin}[name]
  wide, x = jax.tree.map(np.float64, params), INPUTS[name]
  expected = np.stack([twin(wide, sample) for sample in x])
  np.testing.assert_allclose(logits(name, params, x), expected, atol=2e-5)


@each_model
def test_models_are_their_numpy_twins(name):
  check_twin(name, draw_params(name))


def test_norms_add_almost_nothing_to_the_variance():
  params = draw_params('bert_nano')
  for name in ('words', 'positions', 'token_types'):
    params[name] *= 1e-4
  check_twin('bert_nano', params)


def test_a_text_of_padding_alone_is_finite():
  """Catches a softmax over no tokens, which is NaN."""
  x = 0 * INPUTS['bert_nano']
  assert np.isfinite(logits('bert_nano', draw_params('bert_nano'), x)).all()
