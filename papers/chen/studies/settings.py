"""The three settings in which Chen et al.'s methods are compared.

Chen, Li and Banerjee, arXiv:2411.06770, section 5 and appendix D, at a scale
that the machine allows: five clients with equal shares, everybody in a round,
label smoothing 0.1, weight decay 1e-4.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fl_sketch import models, runs
from fl_sketch.models import pretrained

from ...common.workspace import Fields, Workspace

_SHARED: Fields = {
  'population': 5, 'cohort': 5, 'local_steps': 1, 'batch_size': 16,
  'label_smoothing': 0.1, 'weight_decay': 1e-4,
}  # fmt: skip
_MODELS: dict[str, Fields] = {
  'resnet': {
    'dataset': 'cifar10', 'train_slice': '0:10000', 'model': 'resnet8',
    'model_options': {'width': 16, 'stem_stride': 2},
  },
  'vit': {
    'dataset': 'cifar10', 'train_slice': '20000:30000', 'model': 'vit_nano',
    'model_options': {'patch': 8},
  },
  'text': {
    'dataset': 'sst2', 'dataset_options': {'length': 32}, 'model': 'bert_nano',
  },
  # At quick scale the three are one, which needs no data.
  'digits': {'dataset': 'digits', 'model_options': {'widths': (16,)}},
}  # fmt: skip
_BEFORE = {'train_slice': '0:20000', 'test_slice': '0:2000'}
ADAM = {'server_optimizer': 'adam', 'b2': 0.99}


class LearningSetting(NamedTuple):
  """Learning problem of a comparison: config fields and model size."""

  name: str  # of its folder
  fields: Fields  # of the config, the methods' own apart
  dimension: int  # parameters of the model

  def floats(self, share: float) -> int:
    """Number of floats that a client may send in a round."""
    return max(20, round(share * self.dimension))


def learning_setting(
  ws: Workspace, model: str, r: Mapping[str, Any]
) -> LearningSetting:
  """The setting of a model, with the registered rounds and evaluations."""
  rounds, every = r['rounds'], r['rounds'] // r['evaluations']
  if ws.scale == 'quick':
    model = 'digits'
  fields = _SHARED | _MODELS[model]
  fields |= {'rounds': rounds, 'checkpoint_every': rounds}
  fields |= {'eval_every': every, 'rounds_per_dispatch': every}
  if 'before' in r and ws.scale != 'quick':
    before = _BEFORE | r['before']
    fields['pretrained'] = _trained_before(ws, fields | before)
  params = runs.build(fields, ws.data_dir).params
  return LearningSetting(model, fields, models.num_params(params))


def _trained_before(ws, fields) -> str:
  """The file of a model, but for its head, trained as the fields say.

  Its seed is that of no comparison, whose heads must not be the one that it
  began with: what it learned fits that one.
  """
  own = {'algorithm': 'fedavg', 'server_lr': 0.003, 'seed': 1000}
  fields = fields | ADAM | own
  params = ws.train('vit/before', fields).state.params
  path = ws.folder / 'runs' / 'vit' / 'before' / 'model.safetensors'
  pretrained.save(path, {k: v for k, v in params.items() if k != 'head'})
  return str(path)
