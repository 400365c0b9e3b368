"""ViT and BERT from files of Hugging Face: as NumPy computes, and by laws."""

import functools
import logging
import math

import cases
import chex
from fl_sketch import models
from fl_sketch.models import layouts, pretrained, transformer
from flax import traverse_util
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from operators import two_shards
import pytest

from tests.models.test_decoder_files import attend, libraries, load
from tests.models.test_models import normals, shapes

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
PREFIX = {'vit_nano': 'vit.', 'bert_nano': 'bert.'}
each_model = pytest.mark.parametrize('name', OPTIONS)


def make(name, classes=3, **options):
  return models.make(name, classes, **(OPTIONS[name] | options))


def start(name, classes=3, **options):
  """(module, params of zeros, but ones in the head)."""
  module = make(name, classes, **options)
  params = shapes(module, INPUTS[name].shape[1:], INPUTS[name].dtype)
  params = jax.tree.map(lambda p: jnp.zeros(p.shape), params)
  return module, params | {'head': jax.tree.map(jnp.ones_like, params['head'])}


def draw_params(name):
  """Params drawn by NumPy, no bias zero and no scale one."""
  return normals(start(name)[1], 0.5)


@functools.cache
def program(name):
  return cases.jit(lambda params, x: make(name).apply({'params': params}, x))


def published(name, params):
  """A file's arrays; the twins read them by the names that they know."""
  layout, stored = layouts.layout_of(make(name)), {}
  for ours, x in traverse_util.flatten_dict(params, sep='/').items():
    theirs, *_ = layouts.find_array(layout, [layout.prefix], ours)
    if ours == 'patches/kernel':
      x = x.reshape(2, 2, 3, -1).transpose(3, 2, 0, 1)
    elif ours.endswith('kernel'):
      x = x.T
    elif theirs.startswith('vit.') and x.ndim == 2:
      x = x[None]  # class token and positions
    stored[theirs] = np.ascontiguousarray(x)
  return stored


def dense(w, key, x):
  return x @ w[f'{key}.weight'].T + w[f'{key}.bias']


def norm(w, key, x):
  centred = x - x.mean(-1, keepdims=True)
  variance = np.square(centred).mean(-1, keepdims=True)
  normed = centred / np.sqrt(variance + 1e-12)
  return w[f'{key}.weight'] * normed + w[f'{key}.bias']


def attention(w, block, inner, x):
  """Of one sequence f64[length, width], by heads."""
  parts = (
    np.split(dense(w, f'{block}.attention.{inner}.{name}', x), 2, axis=1)
    for name in ('query', 'key', 'value')
  )
  heads = [attend(*head, causal=False) for head in zip(*parts, strict=True)]
  attended = np.concatenate(heads, 1)
  return dense(w, f'{block}.attention.output.dense', attended)


def mlp(w, block, x):
  h = dense(w, f'{block}.intermediate.dense', x)
  h *= (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2
  return dense(w, f'{block}.output.dense', h)


def vit_twin(w, image):
  projection = 'embeddings.patch_embeddings.projection'
  tokens = [w['embeddings.cls_token'][0, 0]]
  for i in range(0, image.shape[0], 2):
    for j in range(0, image.shape[1], 2):
      patch, kernel = image[i : i + 2, j : j + 2], w[f'{projection}.weight']
      token = np.einsum('ijc,ocij->o', patch, kernel)
      tokens.append(token + w[f'{projection}.bias'])
  x = np.stack(tokens) + w['embeddings.position_embeddings'][0]
  for i in range(2):
    block = f'encoder.layer.{i}'
    h = norm(w, f'{block}.layernorm_before', x)
    x = x + attention(w, block, 'attention', h)
    x = x + mlp(w, block, norm(w, f'{block}.layernorm_after', x))
  return dense(w, 'classifier', norm(w, 'layernorm', x)[0])


def bert_twin(w, tokens):
  tokens = tokens[tokens > 0]  # what is padded away might as well not be there
  tables = {'word': tokens, 'position': slice(len(tokens)), 'token_type': 0}
  rows = (
    w[f'embeddings.{table}_embeddings.weight'][at]
    for table, at in tables.items()
  )
  x = norm(w, 'embeddings.LayerNorm', sum(rows))
  for i in range(2):
    block = f'encoder.layer.{i}'
    x = x + attention(w, block, 'self', x)
    x = norm(w, f'{block}.attention.output.LayerNorm', x)
    x = norm(w, f'{block}.output.LayerNorm', x + mlp(w, block, x))
  return dense(w, 'classifier', np.tanh(dense(w, 'pooler.dense', x[0])))


@each_model
def test_models_are_their_numpy_twins(name):
  """Catches a layer of another place in a file, and a large epsilon."""
  params = draw_params(name)
  if name == 'bert_nano':
    for table in 'words', 'positions', 'token_types':
      params[table] *= 1e-4
  twin = {'vit_nano': vit_twin, 'bert_nano': bert_twin}[name]
  w = {
    k.removeprefix(PREFIX[name]): x.astype(np.float64)
    for k, x in published(name, params).items()
  }
  expected = np.stack([twin(w, sample) for sample in INPUTS[name]])
  logits = program(name)(params, INPUTS[name])
  np.testing.assert_allclose(logits, expected, atol=2e-5)


@each_model
def test_published_arrays_are_the_parameters(name, tmp_path):
  """Catches a transpose, a prefix that is expected, and other types."""
  params = draw_params(name)
  stored = published(name, params)
  bare = {k.removeprefix(PREFIX[name]): x for k, x in stored.items()}
  old = {  # as of bert-base-uncased
    k.replace('Norm.weight', 'Norm.gamma').replace('Norm.bias', 'Norm.beta'): x
    for k, x in stored.items()
  }
  for arrays in stored, bare, old:
    chex.assert_trees_all_equal(load(tmp_path, arrays, start(name)), params)
  narrow = {k: x.astype(ml_dtypes.bfloat16) for k, x in stored.items()}
  rounded = jax.tree.map(
    lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), params
  )
  chex.assert_trees_all_equal(load(tmp_path, narrow, start(name)), rounded)


def test_a_text_of_padding_alone_is_finite():
  """Catches a softmax over no tokens, which is NaN."""
  x = 0 * INPUTS['bert_nano']
  assert np.isfinite(program('bert_nano')(draw_params('bert_nano'), x)).all()


@pytest.mark.nightly
@pytest.mark.smoke
def test_gelu_and_its_slope_in_shards_are_those_of_jax():
  """JAX 0.12 cannot derive its own exact GELU inside `shard_map`."""
  x = jnp.linspace(-5, 5, 64).reshape(2, 32)
  slope = lambda f: jax.vmap(jax.vmap(jax.value_and_grad(f)))
  want = slope(lambda x: jax.nn.gelu(x, approximate=False))(x)
  ours = two_shards(slope(transformer.gelu), split=(True,))
  chex.assert_trees_all_close(ours(x), want, rtol=1e-6)


@each_model
def test_other_heads_stay_as_drawn_and_are_logged(name, tmp_path, caplog):
  """Catches a head that is lost, or a loss of arrays that nobody hears of."""
  params = draw_params(name)
  stored = published(name, params)
  extra = {'cls.predictions.bias': np.zeros(20, np.float32)}
  if name == 'vit_nano':
    extra = {'pooler.dense.weight': np.zeros((8, 8), np.float32)}
  headless = {k: x for k, x in stored.items() if 'classifier' not in k}
  for classes, arrays in ((3, headless | extra), (5, stored | extra)):
    module, drawn = start(name, classes)
    caplog.clear()
    with caplog.at_level(logging.INFO):
      read = load(tmp_path, arrays, (module, drawn))
    chex.assert_trees_all_equal(read, params | {'head': drawn['head']})
    for array in 'head/kernel', 'head/bias', next(iter(extra)):
      assert array in caplog.text


def test_what_is_saved_is_loaded(tmp_path):
  """Catches a transposed view that is written in the order of its memory."""
  module = models.make('mlp', 3, widths=(4,))
  params = normals(shapes(module, (5,)), 1.0)
  params['Dense_0']['kernel'] = np.asfortranarray(params['Dense_0']['kernel'])
  pretrained.save(tmp_path / 'own.safetensors', params)
  drawn = jax.tree.map(lambda p: jnp.full(p.shape, 7.0), params)
  read = pretrained.load(tmp_path / 'own.safetensors', module, drawn)
  chex.assert_trees_all_equal(read, params)


@pytest.mark.filterwarnings('ignore')  # theirs
def test_logits_of_a_vit_are_those_of_transformers(tmp_path):
  """Catches what the twin misreads too; `test_decoder_files` has the others."""
  torch, transformers = libraries()
  torch.manual_seed(0)
  config = transformers.ViTConfig(
    image_size=4, patch_size=2, hidden_size=8, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=32, num_labels=3,
  )  # fmt: skip
  theirs = transformers.ViTForImageClassification(config)
  x = INPUTS['vit_nano'][:, :, :4]
  with torch.no_grad():
    for weight in theirs.parameters():
      weight.copy_(torch.randn_like(weight))
    pixels = torch.tensor(x).permute(0, 3, 1, 2)
    expected = theirs.eval()(pixel_values=pixels).logits.numpy()
  theirs.save_pretrained(tmp_path)
  module = make('vit_nano')
  zeros = jax.tree.map(jnp.zeros_like, shapes(module, x.shape[1:]))
  params = pretrained.load(tmp_path / 'model.safetensors', module, zeros)
  logits = np.asarray(module.apply({'params': params}, x))
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
