"""Parameters from files: by name, by shape, and as transformers computes."""

import logging
import re

import chex
from fl_sketch import models
from fl_sketch.models import pretrained
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch_models

from tests.models.test_decoder_files import load
from tests.models.test_models import shapes
from tests.models.test_transformers_models import make

WIDTH, HIDDEN, CLASSES = 8, 32, 3
X = {
  'vit_nano': np.random.default_rng(0).normal(size=(3, 4, 4, 3)).astype('f4'),
  'bert_nano': np.array([[2, 7, 9, 3, 0, 0], [2, 3, 0, 0, 0, 0]], 'i4'),
}
NORMS = {
  'vit_nano': {'norm_attention': 'layernorm_before',
    'norm_mlp': 'layernorm_after'},
  'bert_nano': {'norm_attention': 'attention.output.LayerNorm',
    'norm_mlp': 'output.LayerNorm'},
}  # fmt: skip
INNER = {'vit_nano': 'attention', 'bert_nano': 'self'}
each_model = pytest.mark.parametrize('name', X)


def start(name, classes=CLASSES, **options):
  """(module, params of zeros, but ones in the head)."""
  module = make(name, classes, **options)
  params = shapes(module, X[name].shape[1:], X[name].dtype)
  params = jax.tree.map(lambda p: jnp.zeros(p.shape), params)
  return module, params | {'head': jax.tree.map(jnp.ones_like, params['head'])}


def published(name, prefix):
  """A file's arrays, by Hugging Face's names."""
  rng, stored = np.random.default_rng(1), {}

  def add(key, *shape):
    stored[key] = rng.normal(size=shape).astype(np.float32)

  def layer(key, out, *into):
    add(f'{key}.weight', out, *into)
    add(f'{key}.bias', out)

  vit = name == 'vit_nano'
  if vit:
    add(f'{prefix}embeddings.cls_token', 1, 1, WIDTH)
    add(f'{prefix}embeddings.position_embeddings', 1, 5, WIDTH)
    layer(f'{prefix}embeddings.patch_embeddings.projection', WIDTH, 3, 2, 2)
    layer(f'{prefix}layernorm', WIDTH)
  else:
    for table, rows in (('word', 20), ('position', 6), ('token_type', 2)):
      add(f'{prefix}embeddings.{table}_embeddings.weight', rows, WIDTH)
    layer(f'{prefix}embeddings.LayerNorm', WIDTH)
    layer(f'{prefix}pooler.dense', WIDTH, WIDTH)
  for i in range(2):
    block = f'{prefix}encoder.layer.{i}'
    for product in ('query', 'key', 'value'):
      layer(f'{block}.attention.{INNER[name]}.{product}', WIDTH, WIDTH)
    layer(f'{block}.attention.output.dense', WIDTH, WIDTH)
    layer(f'{block}.intermediate.dense', HIDDEN, WIDTH)
    layer(f'{block}.output.dense', WIDTH, HIDDEN)
    for norm in NORMS[name].values():
      layer(f'{block}.{norm}', WIDTH)
  layer('classifier', CLASSES, WIDTH)
  return stored


def by_hand(name, stored, prefix):
  """The parameters that a file's arrays are, with every transpose written."""
  x = {k.removeprefix(prefix): x for k, x in stored.items()}
  norm = lambda key: {'scale': x[f'{key}.weight'], 'bias': x[f'{key}.bias']}
  dense = lambda key: {'kernel': x[f'{key}.weight'].T, 'bias': x[f'{key}.bias']}
  if name == 'vit_nano':
    patches = 'embeddings.patch_embeddings.projection'
    kernel = np.einsum('ocij->ijco', x[f'{patches}.weight'])
    params = {
      'class_token': x['embeddings.cls_token'][0],
      'positions': x['embeddings.position_embeddings'][0],
      'patches': {
        'kernel': kernel.reshape(12, WIDTH),
        'bias': x[f'{patches}.bias'],
      },
      'norm': norm('layernorm'),
    }
  else:
    params = {
      'words': x['embeddings.word_embeddings.weight'],
      'positions': x['embeddings.position_embeddings.weight'],
      'token_types': x['embeddings.token_type_embeddings.weight'],
      'norm': norm('embeddings.LayerNorm'),
      'pooler': dense('pooler.dense'),
    }
  for i in range(2):
    block = f'encoder.layer.{i}'
    attention = f'{block}.attention.{INNER[name]}'
    params[f'block_{i}'] = {
      'attention': {
        **{k: dense(f'{attention}.{k}') for k in ('query', 'key', 'value')},
        'out': dense(f'{block}.attention.output.dense'),
      },
      'mlp_in': dense(f'{block}.intermediate.dense'),
      'mlp_out': dense(f'{block}.output.dense'),
      **{ours: norm(f'{block}.{n}') for ours, n in NORMS[name].items()},
    }
  return params | {'head': dense('classifier')}


@each_model
@pytest.mark.parametrize('prefixed', [True, False])
def test_published_arrays_are_transposed_as_by_hand(name, prefixed, tmp_path):
  prefix = f'{name[:-5]}.' if prefixed else ''
  stored = published(name, prefix)
  params = load(tmp_path, stored, start(name))
  chex.assert_trees_all_equal(params, by_hand(name, stored, prefix))


def test_norms_by_their_old_names_are_those_by_the_new(tmp_path):
  stored = published('bert_nano', 'bert.')
  old = dict(stored)
  for new_name, old_name in (('weight', 'gamma'), ('bias', 'beta')):
    new, before = f'LayerNorm.{new_name}', f'LayerNorm.{old_name}'
    old = {k.replace(new, before): x for k, x in old.items()}
  assert len(old.keys() - stored.keys()) == 10
  params = load(tmp_path, old, start('bert_nano'))
  chex.assert_trees_all_equal(params, by_hand('bert_nano', stored, 'bert.'))


@each_model
def test_other_heads_stay_as_drawn_and_are_logged(name, tmp_path, caplog):
  stored = published(name, '')
  extra = {'cls.predictions.bias': np.zeros(20, np.float32)}
  if name == 'vit_nano':
    extra = {'pooler.dense.weight': np.zeros((WIDTH, WIDTH), np.float32)}
  headless = {k: x for k, x in stored.items() if 'classifier' not in k}
  for classes, arrays in ((CLASSES, headless | extra), (5, stored | extra)):
    module, drawn = start(name, classes)
    caplog.clear()
    with caplog.at_level(logging.INFO):
      params = load(tmp_path, arrays, (module, drawn))
    expected = by_hand(name, stored, '') | {'head': drawn['head']}
    chex.assert_trees_all_equal(params, expected)
    assert 'head/kernel stays as drawn' in caplog.text
    assert 'head/bias stays as drawn' in caplog.text
    assert f'{next(iter(extra))} of ' in caplog.text
    assert caplog.text.count('has no place') == 1


def test_other_floats_become_those_of_the_model(tmp_path):
  stored = published('vit_nano', '')
  narrow = {k: x.astype(ml_dtypes.bfloat16) for k, x in stored.items()}
  params = load(tmp_path, narrow, start('vit_nano'))
  stored = {k: x.astype(np.float32) for k, x in narrow.items()}
  chex.assert_trees_all_equal(params, by_hand('vit_nano', stored, ''))


@pytest.mark.parametrize('name', [*X, 'mlp'])
def test_what_is_saved_is_loaded(name, tmp_path):
  path = tmp_path / 'own.safetensors'
  if name == 'mlp':
    module = models.make('mlp', 3, widths=(4,))
    params = models.init_params(module, jax.random.key(0), (5,))
  else:
    stored = published(name, '')
    module, params = start(name)[0], by_hand(name, stored, '')
    assert not params['block_0']['mlp_in']['kernel'].flags.c_contiguous
  pretrained.save(path, params)
  drawn = jax.tree.map(lambda p: jnp.full(p.shape, 7.0), params)
  chex.assert_trees_all_equal(pretrained.load(path, module, drawn), params)


@each_model
def test_a_file_of_other_arrays_is_refused(name, tmp_path):
  """Catches arrays that stay as drawn, and a file that is none."""
  stored, model = published(name, ''), start(name)
  for key, x in stored.items():
    if not key.startswith('classifier'):
      without = {k: y for k, y in stored.items() if k != key}
      for arrays in without, stored | {key: x[..., :-1]}:
        with pytest.raises(ValueError, match=re.escape(key)):
          load(tmp_path, arrays, model)
  with pytest.raises(ValueError, match='arrays'):
    load(tmp_path, stored, start(name, depth=1))
  path = tmp_path / 'other.safetensors'
  for _ in range(2):
    with pytest.raises(ValueError, match='other'):
      pretrained.load(path, *model)
    path.write_bytes(b'a page that says where to sign in')


@pytest.mark.filterwarnings('ignore')  # theirs
def test_logits_of_a_vit_are_those_of_transformers(tmp_path):
  """Catches what `by_hand` misreads too; test_export has the other models."""
  torch, transformers = torch_models.libraries()
  torch.manual_seed(0)
  config = transformers.ViTConfig(
    image_size=4, patch_size=2, hidden_size=WIDTH, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=HIDDEN, num_labels=CLASSES,
  )  # fmt: skip
  theirs, x = transformers.ViTForImageClassification(config), X['vit_nano']
  with torch.no_grad():
    for weight in theirs.parameters():
      weight.copy_(torch.randn_like(weight))
    pixels = torch.tensor(x).permute(0, 3, 1, 2)
    expected = theirs.eval()(pixel_values=pixels).logits.numpy()
  theirs.save_pretrained(tmp_path)
  assert np.ptp(expected, axis=0).min() > 1e-2  # samples differ
  module, params = start('vit_nano')
  params = pretrained.load(tmp_path / 'model.safetensors', module, params)
  logits = np.asarray(module.apply({'params': params}, x))
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
