"""GPT-2 and Llama from files of Hugging Face: as NumPy computes."""

import json

from fl_sketch import models
from fl_sketch.models import layouts, pretrained
import jax
import numpy as np
import pytest
from safetensors import numpy as files

from tests.models.test_models import shapes

WIDTH, HIDDEN, HEADS, KV_HEADS, WORDS, LENGTH = 12, 20, 3, 1, 17, 7
SMALL = {'width': WIDTH, 'depth': 2, 'heads': HEADS, 'hidden': HIDDEN}
LLAMA = SMALL | {'kv_heads': KV_HEADS}
OWN_HEAD = {'tied': False}
X = np.random.default_rng(0).integers(0, WORDS, (2, LENGTH), np.int32)
CASES = {
  'gpt2': SMALL,
  'gpt2 head': SMALL | OWN_HEAD,
  'llama': LLAMA | {'theta': 100.0, 'epsilon': 1e-2},
  'llama head': LLAMA | {'qkv_bias': True, 'kv_heads': HEADS} | OWN_HEAD,
}
each_case = pytest.mark.parametrize('case', CASES)


def start(case, **options):
  """(module, params of zeros)."""
  name = {'gpt2': 'gpt_nano', 'llama': 'llama'}[case.split()[0]]
  module = models.make(name, WORDS, **CASES[case] | options)
  params = shapes(module, (LENGTH,), np.int32)
  return module, jax.tree.map(lambda p: np.zeros(p.shape, np.float32), params)


def published(case, prefix=True):
  """A file's arrays, by Hugging Face's names."""
  rng, stored, options = np.random.default_rng(1), {}, CASES[case]
  start = {'g': 'transformer.', 'l': 'model.'}[case[0]] if prefix else ''

  def add(key, *shape):
    stored[key] = (rng.normal(size=shape) / 2).astype(np.float32)

  def layer(key, *shape, bias=True):
    add(f'{start}{key}.weight', *shape)
    if bias:
      add(f'{start}{key}.bias', shape[0] if case[0] == 'l' else shape[-1])

  if case.startswith('gpt2'):
    add(f'{start}wte.weight', WORDS, WIDTH)
    add(f'{start}wpe.weight', LENGTH, WIDTH)
    for i in range(2):
      layer(f'h.{i}.ln_1', WIDTH)
      layer(f'h.{i}.attn.c_attn', WIDTH, 3 * WIDTH)
      layer(f'h.{i}.attn.c_proj', WIDTH, WIDTH)
      layer(f'h.{i}.ln_2', WIDTH)
      layer(f'h.{i}.mlp.c_fc', WIDTH, HIDDEN)
      layer(f'h.{i}.mlp.c_proj', HIDDEN, WIDTH)
    layer('ln_f', WIDTH)
  else:
    bias, kv = options.get('qkv_bias', False), options['kv_heads']
    add(f'{start}embed_tokens.weight', WORDS, WIDTH)
    for i in range(2):
      layer(f'layers.{i}.input_layernorm', WIDTH, bias=False)
      for name, heads in (('q', HEADS), ('k', kv), ('v', kv)):
        out = heads * WIDTH // HEADS
        layer(f'layers.{i}.self_attn.{name}_proj', out, WIDTH, bias=bias)
      layer(f'layers.{i}.self_attn.o_proj', WIDTH, WIDTH, bias=False)
      layer(f'layers.{i}.post_attention_layernorm', WIDTH, bias=False)
      for name in ('gate', 'up'):
        layer(f'layers.{i}.mlp.{name}_proj', HIDDEN, WIDTH, bias=False)
      layer(f'layers.{i}.mlp.down_proj', WIDTH, HIDDEN, bias=False)
    layer('norm', WIDTH, bias=False)
  if not options.get('tied', True):
    add('lm_head.weight', WORDS, WIDTH)
  return stored


def load(folder, stored, model, config=None):
  """Loads what a file with these arrays has for (module, params)."""
  path = folder / 'model.safetensors'
  files.save_file(stored, path)
  if config is not None:
    (folder / 'config.json').write_text(json.dumps(config))
  return pretrained.load(path, *model)


def softmax(scores):
  scores = np.exp(scores - scores.max())
  return scores / scores.sum()


def attend(query, key, value):
  """Of one head: position p sees those up to p."""
  out = np.zeros_like(value)
  for p in range(len(query)):
    weights = softmax(key[: p + 1] @ query[p] / np.sqrt(query.shape[1]))
    out[p] = weights @ value[: p + 1]
  return out


def gpt2_twin(w, tokens):
  """Logits of one sequence, of arrays by their names without prefix."""

  def norm(key, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5)
    return x * w[f'{key}.weight'] + w[f'{key}.bias']

  product = lambda key, x: x @ w[f'{key}.weight'] + w[f'{key}.bias']
  x = w['wte.weight'][tokens] + w['wpe.weight'][: len(tokens)]
  for i in range(2):
    h = product(f'h.{i}.attn.c_attn', norm(f'h.{i}.ln_1', x))
    query, key, value = (
      h[:, j * WIDTH : (j + 1) * WIDTH].reshape(-1, HEADS, WIDTH // HEADS)
      for j in range(3)
    )
    heads = [attend(query[:, j], key[:, j], value[:, j]) for j in range(HEADS)]
    x = x + product(f'h.{i}.attn.c_proj', np.concatenate(heads, -1))
    h = product(f'h.{i}.mlp.c_fc', norm(f'h.{i}.ln_2', x))
    cubic = np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)
    x = x + product(f'h.{i}.mlp.c_proj', h * (1 + np.tanh(cubic)) / 2)
  return norm('ln_f', x) @ w.get('lm_head.weight', w['wte.weight']).T


def turned(x, theta):
  """Rotary positions of one head, f64[length, size], as complex numbers."""
  half = x.shape[1] // 2
  z = x[:, :half] + 1j * x[:, half:]
  for p in range(len(z)):
    for i in range(half):
      z[p, i] *= np.exp(1j * p * theta ** (-2 * i / x.shape[1]))
  return np.concatenate([z.real, z.imag], -1)


def llama_twin(w, tokens, kv_heads, theta=1e4, epsilon=1e-5, **_):
  """Logits of one sequence, of arrays by their names without prefix."""

  def norm(key, x):
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
    return x * w[f'{key}.weight']

  def product(key, x):
    return x @ w[f'{key}.weight'].T + w.get(f'{key}.bias', 0)

  x, size = w['embed_tokens.weight'][tokens], WIDTH // HEADS
  for i in range(2):
    h, block = norm(f'layers.{i}.input_layernorm', x), f'layers.{i}'
    query, key, value = (
      product(f'{block}.self_attn.{name}_proj', h).reshape(len(x), -1, size)
      for name in 'qkv'
    )
    heads = []
    for j in range(HEADS):
      k = j // (HEADS // kv_heads)
      q = turned(query[:, j], theta)
      heads.append(attend(q, turned(key[:, k], theta), value[:, k]))
    x = x + product(f'{block}.self_attn.o_proj', np.concatenate(heads, -1))
    h = norm(f'{block}.post_attention_layernorm', x)
    gate = product(f'{block}.mlp.gate_proj', h)
    gate = gate / (1 + np.exp(-gate)) * product(f'{block}.mlp.up_proj', h)
    x = x + product(f'{block}.mlp.down_proj', gate)
  return norm('norm', x) @ w.get('lm_head.weight', w['embed_tokens.weight']).T


@pytest.mark.representatives('gpt2 head-True-True', 'llama-False-True')
@pytest.mark.parametrize('scan', [False, True])
@pytest.mark.parametrize('prefix', [False, True])
@each_case
def test_logits_are_those_of_a_numpy_twin_of_the_file(
  case, prefix, scan, tmp_path
):
  """Catches a transpose, a third or half that is another, and a wrong base."""
  stored = published(case, prefix)
  module, params = start(case, scan=scan)
  params = load(tmp_path, stored, (module, params))
  logits = module.apply({'params': params}, X)
  bare = {
    k.removeprefix('transformer.').removeprefix('model.'): x.astype(np.float64)
    for k, x in stored.items()
  }
  gpt2 = case.startswith('gpt2')
  options = {} if gpt2 else CASES[case]
  twin = gpt2_twin if gpt2 else llama_twin
  expected = np.stack([twin(bare, tokens, **options) for tokens in X])
  assert np.ptp(expected, axis=(0, 1)).min() > 0.1  # places differ
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


GPT2_CONFIG = {
  'model_type': 'gpt2', 'n_head': HEADS, 'layer_norm_epsilon': 1e-5,
  'activation_function': 'gelu_new', 'scale_attn_weights': True,
}  # fmt: skip
LLAMA_CONFIG = {
  'model_type': 'llama', 'num_attention_heads': HEADS, 'rms_norm_eps': 1e-2,
  'rope_theta': 100.0, 'rope_scaling': None, 'hidden_act': 'silu',
}  # fmt: skip
NEW_CONFIG = {
  'model_type': 'qwen2', 'use_sliding_window': False,
  'rope_parameters': {'rope_theta': 100.0, 'rope_type': 'default'},
}  # fmt: skip


def test_what_a_file_may_have_beside_its_model_is_left_out(tmp_path):
  """Catches refusals of gpt2 itself, whose file has its masks."""
  masks = {
    'h.0.attn.bias': np.tri(3, dtype=np.float32),
    'h.1.attn.masked_bias': np.zeros((), np.float32),
  }
  rates = {'model.layers.1.self_attn.rotary_emb.inv_freq': np.ones(2)}
  for case, prefix, more, config in (
    ('gpt2', False, masks, GPT2_CONFIG),
    ('gpt2 head', True, {}, None),
    ('llama', True, rates, LLAMA_CONFIG),
    ('llama', True, {}, NEW_CONFIG),
  ):
    stored = published(case, prefix)
    if case == 'gpt2':  # tied, and written all the same
      more |= {'lm_head.weight': stored['wte.weight']}
    load(tmp_path, stored | more, start(case), config)
    (tmp_path / 'config.json').unlink(missing_ok=True)


def test_a_file_with_an_array_more_or_less_is_refused(tmp_path):
  """Catches a model that keeps drawn numbers, or computes something else."""
  stored, model = published('gpt2 head'), start('gpt2 head')
  for name, x in stored.items():
    rest = {k: y for k, y in stored.items() if k != name}
    for spoiled in (
      rest,
      stored | {name: x[..., :-1]},
      stored | {f'{name}.q': x},
    ):
      with pytest.raises(ValueError, match=name):
        load(tmp_path, spoiled, model)
  # A head that stays as it was drawn, and more blocks than the model has.
  for file, other, options in (
    ('gpt2 head', 'gpt2', {}), ('llama head', 'llama', {}),
    ('llama', 'llama', {'depth': 1}), ('gpt2', 'gpt2', {'theta': 1e4}),
  ):  # fmt: skip
    with pytest.raises(ValueError, match='model'):
      load(tmp_path, published(file), start(other, **options))


OTHER = {'rope_scaling': {'factor': 8.0}, 'model_type': 'gemma'}


@pytest.mark.parametrize('case', ['gpt2', 'llama'])
def test_a_config_of_another_model_is_refused_by_its_field(case, tmp_path):
  """Catches a model of the file's shapes that computes something else."""
  stored, model = published(case), start(case)
  config = GPT2_CONFIG if case == 'gpt2' else LLAMA_CONFIG | NEW_CONFIG
  for field, values in layouts.of(model[0]).expected(model[0]).items():
    value = values[0] if values else None
    other = OTHER.get(field, 'x' if isinstance(value, str) else 7)
    parameters = {'rope_parameters': None}  # which would replace the field
    with pytest.raises(ValueError, match=field):
      load(tmp_path, stored, model, config | parameters | {field: other})
