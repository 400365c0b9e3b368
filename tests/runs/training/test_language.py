"""A run of a language model writes text, and keeps its vocabulary."""

import json

import chex
import draws
from fl_sketch import runs
from fl_sketch.data import sources
from fl_sketch.models import pretrained
from fl_sketch.runs import loaded, saved_params, workdir
import harness
import jax
import numpy as np
import pytest

from tests.data.test_text import PLAY

FIELDS = harness.SMALL | {
  'dataset': 'text', 'model': 'gpt_nano', 'loss': 'tokens',
  'dataset_options': {'path': 'play.txt', 'tokens': 'characters', 'length': 9},
  'model_options': {'width': 4, 'depth': 1, 'heads': 1},
}  # fmt: skip
LOGITS = np.array([-9.0, 1.0, 0.0, -1.0], np.float32)


@pytest.fixture
def run(tmp_path, monkeypatch):
  """A run that was begun, whose data have gone."""
  draws.by_numpy(monkeypatch)
  (tmp_path / 'play.txt').write_text(PLAY * 9)
  exp = runs.build(FIELDS, str(tmp_path))
  files = workdir.Workdir(tmp_path / 'run', exp.config, {})
  files.begin(0, exp.tokenizer)
  files.close()
  saved_params.write(tmp_path / 'run/params', 1, exp.params)
  run = loaded.load(tmp_path / 'run')
  vars(run)['experiment'] = exp._replace(tokenizer=None)
  return run


@pytest.mark.nightly
def test_a_run_writes_text_and_is_exported(run, tmp_path):
  """Catches ids that are shifted, and a vocabulary that goes with the data."""
  letters = sorted({*PLAY})
  ids = [1 + letters.index(x) for x in 'to be']
  drawn = run.generate(ids, 6, temperature=0)
  assert (drawn[:5], len(drawn)) == (ids, 11)  # more than the window has
  text = run.generate('to be', 6, temperature=0)
  assert text == run.tokenizer.decode(drawn)
  run.export(tmp_path / 'hub')
  path, exp = tmp_path / 'hub/model.safetensors', run.experiment
  read = pretrained.load(path, exp.model, exp.params)
  chex.assert_trees_all_equal(read, run.params)
  (tmp_path / 'hub/tokenizer.json').rename(tmp_path / 'run/tokenizer.json')
  assert run.generate('to be', 6, temperature=0) == text
  (tmp_path / 'run/tokenizer.json').unlink()
  with pytest.raises(ValueError, match='prompt'):
    run.generate('to be')


def test_what_the_vocabulary_lacks_is_named(run):
  """Catches characters that leave a text without a word."""
  with pytest.raises(ValueError, match=r"\['ß', 'é'\]"):
    run.generate('to beß é')
  unknown = run.tokenizer.token_to_id('[UNK]')
  vars(run)['apply'] = lambda x: np.eye(99)[np.full(x.shape, unknown)]
  assert run.generate('to', 2, temperature=0) == 'to[UNK][UNK]'


def test_words_of_a_run_are_those_of_its_parameters(run, tmp_path):
  """Catches adapters of a run that are refused, or read other ids."""
  (tmp_path / 'other.txt').write_text(PLAY.upper() * 9)
  run.save_safetensors(tmp_path / 'base.safetensors')
  fields = FIELDS | {
    'pretrained': str(tmp_path / 'base.safetensors'),
    'dataset_options': FIELDS['dataset_options'] | {'path': 'other.txt'},
    'lora': {'kind': 'naive', 'rank': 1, 'targets': ('attention',)},
  }
  exp = runs.build(fields, str(tmp_path))
  whole = exp.merge(exp.hyper.frozen, exp.params)
  chex.assert_trees_all_equal(whole, run.params)
  words = json.loads(exp.tokenizer)['model']['vocab']
  assert words == run.tokenizer.get_vocab()
  pretrained.save(tmp_path / 'base.safetensors', run.params)
  with pytest.raises(sources.DataError, match='no vocabulary'):
    runs.build(fields, str(tmp_path))


def test_tokens_are_drawn_by_their_probability(run):
  """Catches a window that rests, a key of no effect; alarms below 1e-6."""
  vars(run)['apply'] = lambda x: np.eye(7)[np.cumsum(x, axis=1) % 7]
  expected = [1, 5]
  for _ in range(6):
    expected.append(sum(expected[-3:]) % 7)
  assert run.generate([1, 5], 6, temperature=0, window=3) == expected
  with pytest.raises(ValueError, match='prompt'):
    run.generate([7], 2)
  vars(run)['apply'] = lambda x: np.tile(LOGITS, (*x.shape, 1))
  drawn = run.generate([0], 400, temperature=0.5, key=jax.random.key(3))
  p = np.exp(2 * LOGITS) / np.exp(2 * LOGITS).sum()
  shares = np.bincount(drawn[1:], minlength=4) / 400
  assert (abs(shares - p) < 6 * np.sqrt(p * (1 - p) / 400) + 1e-3).all()
