"""Folders for transformers: read again to the last bit, and as it computes."""

import json

import chex
from fl_sketch import models
from fl_sketch.data import tokenization
from fl_sketch.models import pretrained
import jax
import numpy as np
import pytest
import torch_models

from tests.models.test_decoder_files import CASES, LENGTH, WORDS, X, start
from tests.models.test_models import shapes

LETTERS = tokenization.characters('abcdefghijklm')  # 17 tokens, as WORDS
BERT = {'width': 12, 'depth': 2, 'heads': 3, 'vocab_size': WORDS}
each_case = pytest.mark.parametrize('case', [*CASES, 'bert'])


def exported(case, folder):
  """(module, params), of which the folder is."""
  if case in CASES:
    module, params = start(case)
  else:
    module = models.make('bert_nano', 3, max_length=LENGTH, **BERT)
    params = shapes(module, (LENGTH,), np.int32)
  rng = np.random.default_rng(0)
  draw = lambda x: (rng.normal(size=x.shape) / 3).astype(np.float32)
  params = jax.tree.map(draw, params)
  pretrained.export(folder, module, params, LENGTH, LETTERS.content)
  return module, params


@each_case
def test_what_is_exported_is_read_again(case, tmp_path):
  """Catches a third in another's place, and a config of another model."""
  module, params = exported(case, tmp_path / 'out')
  zeros = jax.tree.map(np.zeros_like, params)
  read = pretrained.load(tmp_path / 'out/model.safetensors', module, zeros)
  chex.assert_trees_all_equal(read, params)
  config = json.loads((tmp_path / 'out/config.json').read_text())
  assert (config['vocab_size'], config['eos_token_id']) == (WORDS, 16)
  kinds = {'llama': 'LlamaFor', 'llama head': 'Qwen2For', 'bert': 'BertFor'}
  assert config['architectures'][0].startswith(kinds.get(case, 'GPT2LM'))


def test_what_transformers_lack_is_refused(tmp_path):
  """Catches a folder that loads as another model, or takes that of a run."""
  for name, options in ('gpt_nano', {'theta': 1e4}), ('lstm', {}):
    module = models.make(name, WORDS, **options)
    with pytest.raises(ValueError, match='cannot be exported'):
      pretrained.export(tmp_path, module, {'words': X}, 9)
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(FileExistsError):
    exported('gpt2', tmp_path)


@each_case
@pytest.mark.filterwarnings('ignore')  # theirs
def test_transformers_compute_and_write_the_same(case, tmp_path):
  """Catches what `pretrained` and `export` both misread."""
  torch, transformers = torch_models.libraries()
  module, params = exported(case, tmp_path)
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
  given = coder('cab', return_tensors='pt')
  ids, framed = given['input_ids'][0].tolist(), [15, 3, 1, 2, 16]
  assert ids == (framed if case == 'bert' else framed[1:-1])
  if case == 'bert':
    return
  output = theirs.generate(**given, max_new_tokens=4, do_sample=False)[0]
  while len(ids) < len(output):
    x = np.array([ids + [0] * (LENGTH - len(ids))] * 2)
    ids.append(int(apply(x)[0, len(ids) - 1].argmax()))
  assert output.tolist() == ids
  text = ''.join('abcdefghijklm'[i - 1] for i in ids if 0 < i < 14)
  assert coder.decode(output, skip_special_tokens=True) == text
