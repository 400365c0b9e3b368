"""The config fields that choose models of sequences, and stores of tokens."""

from fl_sketch import experiment
from fl_sketch.data import store
from fl_sketch.experiment.config import ConfigError
import jax
import numpy as np
import pytest

from tests.models.test_sequence_models import BATCH, LENGTH, WORDS

CONFIG = {
  'dataset': 'store', 'dataset_options': {'folder': 'x'}, 'loss': 'tokens',
  'model': 'gpt_nano', 'population': 2, 'cohort': 2, 'batch_size': 2,
}  # fmt: skip
LAST = {'model': 'lstm', 'model_options': {'last': True, 'hidden': 4}}


@pytest.mark.representatives('fields1-labels1')
@pytest.mark.parametrize(
  ('fields', 'labels'),
  [({}, BATCH['y']), (LAST | {'loss': 'cross_entropy'}, BATCH['y'][:, -1])],
)
def test_a_store_of_tokens_has_a_loss_and_as_many_positions(
  fields, labels, tmp_path
):
  """Catches tokens of 16 bits that are scaled, and places that nobody takes."""
  data = {'x': BATCH['x'].astype(np.int16), 'y': labels}
  folder = tmp_path / 'store'
  store.write(folder, [(np.array([1, 2]), data)], data, num_classes=WORDS)
  own = {'dataset_options': {'folder': str(folder)}}
  exp = experiment.build(CONFIG | fields | own)
  assert fields or exp.params['positions'].shape == (LENGTH - 1, 64)
  batch = jax.tree.map(lambda x: x[:2], exp.data)
  assert abs(float(exp.loss_fn(exp.params, batch)) - np.log(WORDS)) < 0.5
  other = {'loss': 'tokens' if fields else 'cross_entropy'}
  with pytest.raises(ConfigError, match='loss'):
    experiment.build(CONFIG | fields | own | other)
