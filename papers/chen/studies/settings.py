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


def resnet(ws: Workspace) -> LearningSetting:
  """A ResNet from scratch on CIFAR-10: Figures 1 and 6."""
  small = {
    **_MODELS['resnet'], 'test_slice': '0:2000',
    **_work(rounds=300, steps=1, batch=64),
  }  # fmt: skip
  large = {
    'dataset': 'cifar10', 'model': 'resnet18', 'compute_dtype': 'bfloat16',
    **_work(rounds=600, steps=4, batch=128),
  }  # fmt: skip
  return _setting('resnet', ws.pick(_DIGITS, small, large), ws)


def vit(ws: Workspace) -> LearningSetting:
  """A ViT on CIFAR-10 that was trained on other images before: Figure 2."""
  if ws.scale == 'quick':
    return _setting('vit', _DIGITS, ws)
  small = {
    **_MODELS['vit'], 'test_slice': '0:2000',
    **_work(rounds=200, steps=1, batch=32),
  }  # fmt: skip
  large = {
    'dataset': 'cifar10', 'model': 'vit_tiny', 'model_options': {'patch': 4},
    'compute_dtype': 'bfloat16', **_work(rounds=300, steps=4, batch=128),
  }  # fmt: skip
  fields, slices, longer = ws.pick(
    None,
    (small, ('0:20000', '20000:30000'), _work(200, steps=8, batch=32)),
    (large, ('0:25000', '25000:50000'), _work(1000, steps=8, batch=128)),
  )
  before = fields | longer | {'train_slice': slices[0]}
  path = _trained_before(ws, _shared(before))
  fields |= {'train_slice': slices[1], 'pretrained': path}
  return _setting('vit', fields, ws)


def learning_setting(
  ws: Workspace, model: str, r: Mapping[str, Any]
) -> LearningSetting:
  """The setting of a model, with the registered rounds and evaluations."""
  rounds, every = r['rounds'], r['rounds'] // r['evaluations']
  fields = _MODELS[model] | _work(rounds, steps=1, batch=16)
  fields |= {'eval_every': every, 'rounds_per_dispatch': every}
  if ws.scale == 'quick':
    fields = _DIGITS | _work(rounds, steps=1, batch=8)
  elif 'before' in r:
    before = _BEFORE | r['before']
    fields['pretrained'] = _trained_before(ws, _shared(fields | before))
  return _setting(model, fields, ws)


def _work(rounds: int, steps: int, batch: int) -> Fields:
  return {
    'rounds': rounds, 'local_steps': steps, 'batch_size': batch,
    'rounds_per_dispatch': rounds // 20, 'eval_every': rounds // 20,
    'checkpoint_every': rounds,
  }  # fmt: skip


# At quick scale the three are one, which needs no data.
_DIGITS = {
  'dataset': 'digits', 'model_options': {'widths': (16,)},
  **_work(rounds=20, steps=1, batch=8),
}  # fmt: skip


def _setting(name, fields, ws) -> LearningSetting:
  fields = _shared(fields)
  params = runs.build(fields, ws.data_dir).params
  return LearningSetting(
    ws.pick('digits', name), fields, models.num_params(params)
  )


def _shared(fields) -> Fields:
  clients = {'population': 5, 'cohort': 5}
  return clients | {'label_smoothing': 0.1, 'weight_decay': 1e-4} | fields


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
