"""Config fields that choose data and models, and how texts are trained on."""

import draws
from fl_sketch import runs
from fl_sketch.data import sources
from fl_sketch.runs.config import Config
import jax
import numpy as np
import pytest

from tests.data.test_text import PLAY

SMALL = {'population': 4, 'cohort': 4, 'batch_size': 4, 'model': 'mlp'}


@pytest.mark.nightly
def test_a_text_is_trained_by_its_tokens(tmp_path, monkeypatch):
  """Catches labels that no loss takes, and a vocabulary of another size."""
  draws.by_numpy(monkeypatch)
  (tmp_path / 'play.txt').write_text(PLAY * 9)
  options = {'path': 'play.txt', 'tokens': 'characters', 'length': 12}
  fields = SMALL | {'dataset': 'text', 'dataset_options': options}
  fields |= {'model': 'gru', 'loss': 'tokens'}
  exp = runs.build(fields, str(tmp_path))
  zero = jax.tree.map(np.zeros_like, exp.params)
  letters = len({*PLAY}) + 4
  batch = {k: x[-1:] for k, x in exp.data.items()}  # which is padded
  assert (batch['y'] < 0).any()
  assert exp.loss_fn(zero, batch) == pytest.approx(np.log(letters))
  assert exp.metrics_fn(zero, batch)['count'] == (batch['y'] >= 0).sum()
  for other in {'loss': 'cross_entropy'}, {'partition': 'dirichlet'}:
    with pytest.raises(ValueError, match=r'outputs|labels'):
      runs.build(fields | other, str(tmp_path))


def test_slices_are_taken_before_anything_is_shared(monkeypatch):
  draws.by_numpy(monkeypatch)
  c = Config(**SMALL, train_slice='100:180', test_slice=':50')
  exp = runs.build(c)
  whole = sources.load('digits')
  np.testing.assert_array_equal(exp.data['x'], whole.train['x'][100:180])
  assert exp.test['mask'].sum() == 50
  assert exp.partition.sizes.sum() == 80
  with pytest.raises(ValueError, match='train_slice'):
    runs.build(Config(**SMALL, train_slice='1400:1500'))


def test_a_token_past_the_end_of_the_model_is_refused(folder):
  c = SMALL | {
    'dataset': 'sst2', 'dataset_options': {'length': 10, 'vocabulary': 120},
    'model': 'bert_nano', 'model_options': {'vocab_size': 20},
  }  # fmt: skip
  with pytest.raises(ValueError, match='vocab_size'):
    runs.build(c, str(folder))
