"""Decoders and BERT in folders of Hugging Face: as NumPy and they compute."""

import json

import chex
from fl_sketch import models
from fl_sketch.data import tokenization
from fl_sketch.models import layouts, pretrained
import jax
import numpy as np
import pytest
from safetensors import numpy as files

from tests.models.test_models import normals, shapes

WIDTH, HIDDEN, HEADS, WORDS, LENGTH = 12, 20, 3, 17, 7
SMALL = {'width': WIDTH, 'depth': 2, 'heads': HEADS}
GPT = SMALL | {'hidden': HIDDEN}
LLAMA = GPT | {'kv_heads': 1}
OWN_HEAD = {'tied': False}
X = np.random.default_rng(0).integers(0, WORDS, (2, LENGTH), np.int32)
CASES = {
  'gpt2': GPT,
  'gpt2 head': GPT | OWN_HEAD,
  'llama': LLAMA | {'theta': 100.0, 'epsilon': 1e-2},
  'llama head': LLAMA | {'qkv_bias': True, 'kv_heads': HEADS} | OWN_HEAD,
  'bert': SMALL | {'vocab_size': WORDS, 'max_length': LENGTH},
}
NAMES = {'gpt2': 'gpt_nano', 'llama': 'llama', 'bert': 'bert_nano'}
LETTERS = tokenization.characters('abcdefghijklm')  # 17 tokens, as WORDS
each_case = pytest.mark.parametrize('case', CASES)
each_decoder = pytest.mark.parametrize(
  'case', [x for x in CASES if x != 'bert']
)


def libraries():
  """(torch, transformers); skips the test without them."""
  reason = 'transformers and torch are not installed: nothing to compare with'
  names = 'torch', 'transformers'
  return [pytest.importorskip(name, reason=reason) for name in names]


def start(case, **options):
  """(module, params of zeros)."""
  classes = 3 if case == 'bert' else WORDS
  options = CASES[case] | options
  module = models.make(NAMES[case.split()[0]], classes, **options)
  params = shapes(module, (LENGTH,), np.int32)
  return module, jax.tree.map(lambda p: np.zeros(p.shape, np.float32), params)


def exported(case, folder):
  """(module, params, arrays of the file), of which the folder is."""
  module, zeros = start(case)
  params = normals(zeros, 0.5)
  pretrained.export(folder, module, params, LENGTH, LETTERS.content)
  return module, params, files.load_file(folder / 'model.safetensors')


def bare(stored):
  """The arrays by their names without prefix."""
  prefixes = 'transformer.', 'model.', 'bert.'
  return {
    name.removeprefix(next(filter(name.startswith, prefixes), '')): x
    for name, x in stored.items()
  }


def load(folder, stored, model):
  """Loads what a file with these arrays has for (module, params)."""
  files.save_file(stored, folder / 'model.safetensors')
  return pretrained.load(folder / 'model.safetensors', *model)


def attend(query, key, value, causal=True):
  """Of one head: position p sees those up to p, or all of them."""
  out = np.zeros_like(value)
  for p in range(len(query)):
    seen = p + 1 if causal else len(key)
    scores = key[:seen] @ query[p] / np.sqrt(query.shape[1])
    weights = np.exp(scores - scores.max())
    out[p] = weights / weights.sum() @ value[:seen]
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


@each_case
def test_what_is_exported_is_read_again(case, tmp_path):
  """Catches a third in another's place, and a config of another model."""
  _, params, stored = exported(case, tmp_path)
  for arrays in stored, bare(stored):
    chex.assert_trees_all_equal(load(tmp_path, arrays, start(case)), params)
  config = json.loads((tmp_path / 'config.json').read_text())
  assert (config['vocab_size'], config['eos_token_id']) == (WORDS, 16)
  kinds = {'llama': 'LlamaFor', 'llama head': 'Qwen2For', 'bert': 'BertFor'}
  assert config['architectures'][0].startswith(kinds.get(case, 'GPT2LM'))


@pytest.mark.representatives('llama')
@each_decoder
def test_logits_are_those_of_a_numpy_twin_of_the_file(case, tmp_path):
  """Catches a transpose, a third or half that is another, and a wrong base."""
  _, params, stored = exported(case, tmp_path)
  module, _ = start(case, scan='head' in case)
  logits = module.apply({'params': params}, X)
  wide = {k: x.astype(np.float64) for k, x in bare(stored).items()}
  gpt2 = case.startswith('gpt2')
  options = {} if gpt2 else CASES[case]
  twin = gpt2_twin if gpt2 else llama_twin
  expected = np.stack([twin(wide, tokens, **options) for tokens in X])
  assert np.ptp(expected, axis=(0, 1)).min() > 0.1  # places differ
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('case', ['gpt2', 'llama'])
def test_what_a_file_may_have_beside_its_model_is_left_out(case, tmp_path):
  """Catches refusals of gpt2 itself, whose file has its masks."""
  _, params, stored = exported(case, tmp_path)
  (tmp_path / 'config.json').unlink()
  stored = bare(stored)
  more = {
    'h.0.attn.bias': np.tri(3, dtype=np.float32),
    'h.1.attn.masked_bias': np.zeros((), np.float32),
    'lm_head.weight': stored.get('wte.weight'),  # tied, and written as well
  }
  if case == 'llama':
    more = {'layers.1.self_attn.rotary_emb.inv_freq': np.ones(2)}
  read = load(tmp_path, stored | more, start(case))
  chex.assert_trees_all_equal(read, params)


@pytest.mark.nightly
def test_a_file_with_an_array_more_or_less_is_refused(tmp_path):
  """Catches a model that keeps drawn numbers, or computes something else."""
  *_, stored = exported('gpt2 head', tmp_path)
  model = start('gpt2 head')
  for name, x in stored.items():
    rest = {k: y for k, y in stored.items() if k != name}
    more = stored | {f'{name}.q': x}
    for spoiled in rest, stored | {name: x[..., :-1]}, more:
      with pytest.raises(ValueError, match=name):
        load(tmp_path, spoiled, model)
  # A head that stays as it was drawn, and more blocks than the model has.
  for file, other, options in (
    ('gpt2 head', 'gpt2', {}), ('llama head', 'llama', {}),
    ('llama', 'llama', {'depth': 1}), ('gpt2', 'gpt2', {'theta': 1e4}),
  ):  # fmt: skip
    (folder := tmp_path / f'{file}-{other}').mkdir()
    *_, stored = exported(file, folder)
    (folder / 'config.json').unlink()
    with pytest.raises(ValueError, match='model'):
      load(folder, stored, start(other, **options))


OTHER = {'rope_scaling': {'factor': 8.0}, 'model_type': 'gemma'}


@pytest.mark.parametrize('case', ['gpt2', 'llama'])
def test_a_config_of_another_model_is_refused_by_its_field(case, tmp_path):
  """Catches a model of the file's shapes that computes something else."""
  module, params, stored = exported(case, tmp_path)
  path = tmp_path / 'config.json'
  config = json.loads(path.read_text())
  for field, values in layouts.layout_of(module).expected(module).items():
    value = values[0] if values else None
    other = OTHER.get(field, 'x' if isinstance(value, str) else 7)
    parameters = {'rope_parameters': None}  # which would replace the field
    path.write_text(json.dumps(config | parameters | {field: other}))
    with pytest.raises(ValueError, match=field):
      load(tmp_path, stored, (module, params))


@each_case
@pytest.mark.filterwarnings('ignore')  # theirs
def test_transformers_compute_and_write_the_same(case, tmp_path):
  """Catches what `pretrained` and `export` both misread."""
  torch, transformers = libraries()
  module, params, _ = exported(case, tmp_path)
  kind = 'SequenceClassification' if case == 'bert' else 'CausalLM'
  kind = getattr(transformers, f'AutoModelFor{kind}')
  theirs = kind.from_pretrained(tmp_path).eval()
  coder = transformers.AutoTokenizer.from_pretrained(tmp_path)
  apply = lambda x: module.apply({'params': params}, x)
  x = 1 + X % (WORDS - 1)  # without padding
  x[1, 4:] *= case != 'bert'  # which alone masks it
  ids, mask = torch.tensor(x).long(), torch.tensor(x > 0)
  with torch.no_grad():
    logits = theirs(ids, attention_mask=mask).logits.numpy()
  np.testing.assert_allclose(apply(x), logits, atol=1e-5)
  theirs.save_pretrained(tmp_path / 'theirs')
  path = tmp_path / 'theirs/model.safetensors'
  read = pretrained.load(path, module, jax.tree.map(np.zeros_like, params))
  chex.assert_trees_all_equal(read, params)
  ids, framed = coder('cab')['input_ids'], [15, 3, 1, 2, 16]
  assert ids == (framed if case == 'bert' else framed[1:-1])
