"""The three settings of Chen et al., and the methods that race in them.

Chen, Li and Banerjee, arXiv:2411.06770, section 5 and appendix D, at a scale
that the machine allows: five clients with equal shares, everybody in a round,
label smoothing 0.1, weight decay 1e-4.
"""

from typing import Any
from typing import NamedTuple

from fl_sketch import experiment
from fl_sketch import models
from fl_sketch import training
from fl_sketch.models import pretrained
from fl_sketch.reproduce import lab as lab_lib
import numpy as np

Fields = dict[str, Any]
METHODS = (
  'fedadam', 'safl', 'fetchsgd', 'marina', 'cocktail_sgd', 'cd_adam',
  'onebit_adam',
)  # fmt: skip
SHARE = 0.01  # floats that a client sends, of those of its model
_ADAM = {'server_optimizer': 'adam', 'b2': 0.99}
_SMALL = {'server_lr': (0.0003, 0.001, 0.003, 0.01, 0.03)}
_LARGE = (0.003, 0.01, 0.03, 0.1, 0.3)


class Setting(NamedTuple):
  """What all methods learn.

  Attributes:
    name: of its folder.
    fields: of the config, the methods' own apart.
    dimension: parameters of the model.
  """

  name: str
  fields: Fields
  dimension: int

  def floats(self, share: float) -> int:
    """How many a client may send in a round."""
    return max(20, round(share * self.dimension))


def resnet(lab: lab_lib.Lab) -> Setting:
  """A ResNet from scratch on CIFAR-10: Figures 1 and 6."""
  if lab.scale == 'quick':
    return _digits(lab)
  fields = lab.pick(
    None,
    {
      'dataset': 'cifar10',
      'train_slice': '0:10000',
      'test_slice': '0:2000',
      'model': 'resnet8',
      'model_options': {'width': 16, 'stem_stride': 2},
      **_work(rounds=300, steps=1, batch=16),
    },
    {
      'dataset': 'cifar10',
      'model': 'resnet18',
      'compute_dtype': 'bfloat16',
      **_work(rounds=600, steps=4, batch=128),
    },
  )
  return _setting('resnet', fields, lab)


def vit(lab: lab_lib.Lab) -> Setting:
  """A ViT on CIFAR-10 that was trained on other images before: Figure 2."""
  if lab.scale == 'quick':
    return _digits(lab)
  fields = lab.pick(
    None,
    {
      'dataset': 'cifar10',
      'test_slice': '0:2000',
      'model': 'vit_nano',
      'model_options': {'patch': 8},
      **_work(rounds=200, steps=1, batch=16),
    },
    {
      'dataset': 'cifar10',
      'model': 'vit_tiny',
      'model_options': {'patch': 4},
      'compute_dtype': 'bfloat16',
      **_work(rounds=300, steps=4, batch=128),
    },
  )
  first, second = lab.pick(
    None,
    ('0:20000', '20000:30000'),
    ('0:25000', '25000:50000'),
  )
  longer = lab.pick(
    None,
    _work(rounds=200, steps=8, batch=32),
    _work(rounds=1000, steps=8, batch=128),
  )
  before = fields | longer | {'train_slice': first}
  path = _trained_before(lab, method(_setting('vit', before, lab), 'fedadam'))
  return _setting(
    'vit', fields | {'train_slice': second, 'pretrained': path}, lab
  )


def text(lab: lab_lib.Lab) -> Setting:
  """A BERT-style encoder from scratch on sentences of SST-2: Figure 3."""
  if lab.scale == 'quick':
    return _digits(lab)
  fields = lab.pick(
    None,
    {
      'dataset': 'sst2',
      'text_length': 32,
      'model': 'bert_nano',
      **_work(rounds=300, steps=1, batch=16),
    },
    {
      'dataset': 'sst2',
      'model': 'bert_mini',
      'vocabulary': 8000,
      **_work(rounds=600, steps=4, batch=64),
    },
  )
  return _setting('text', fields, lab)


def _work(rounds: int, steps: int, batch: int) -> Fields:
  return {
    'rounds': rounds,
    'local_steps': steps,
    'batch_size': batch,
    'rounds_per_dispatch': rounds // 20,
    'eval_every': rounds // 10,
    'checkpoint_every': rounds,
  }


def _digits(lab) -> Setting:
  """At quick scale the three are one, which needs no data."""
  fields = {'dataset': 'digits', 'widths': (16,)}
  return _setting('digits', fields | _work(rounds=20, steps=1, batch=8), lab)


def _setting(name, fields, lab) -> Setting:
  fields = {
    'population': 5,
    'cohort': 5,
    'label_smoothing': 0.1,
    'weight_decay': 1e-4,
    **fields,
  }
  params = experiment.build(fields, lab.data_dir).params
  return Setting(name, fields, models.num_params(params))


def _trained_before(lab, fields) -> str:
  """The file of a model that was trained as the fields say."""
  fields = fields | {'client_lr': 0.1, 'server_lr': 0.003, 'sweep': None}
  folder = lab.folder / 'runs' / 'vit' / 'before'
  path = folder / 'model.safetensors'
  lab.played['vit/before'] = fields
  exp = experiment.build(fields, lab.data_dir)
  # Where it is finished this only reads the result, and checks the config.
  result = training.train(exp, str(folder), progress=lab.progress)
  if not path.exists():
    pretrained.save(path, result.state.params)
  return str(path)


def method(setting: Setting, name: str, share: float = 1.0) -> Fields:
  """Config of a method that sends this share of a model's floats.

  Five learning rates are in `sweep`: of the server, where it is adaptive or
  the only one that steps, or else of the clients.

  Args:
    setting: what is learned.
    name: one of `METHODS`.
    share: of the floats of a model; 1-bit Adam sends what it sends.
  """
  floats = setting.floats(share)
  steps, batch = (setting.fields[k] for k in ('local_steps', 'batch_size'))
  one_gradient = {'local_steps': 1, 'batch_size': steps * batch}
  # Of each value kept: an int32, half a byte, and a sixteenth of a scale.
  kept = max(16, int(floats / (1 + 1 / 8 + 1 / 16)) // 16 * 16)
  own: dict[str, Fields] = {
    'fedadam': {'algorithm': 'fedavg', **_ADAM, 'sweep': _SMALL},
    'safl': {
      'algorithm': 'safl',
      'sketch': {'kind': 'block_cyclic', 'size': floats},
      **_ADAM,
      'sweep': _SMALL,
    },
    'fetchsgd': {
      'algorithm': 'fetchsgd',
      **one_gradient,
      'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': floats // 5},
      'k': max(1, floats // 16),
      'sweep': {'server_lr': _LARGE},
    },
    'marina': {
      'algorithm': 'marina',
      **one_gradient,
      # The other half of the bytes is that of whole gradients now and then.
      'codec': {'kind': 'rand_k', 'k': floats // 2},
      'sync_probability': floats / 2 / setting.dimension,
      'sweep': {'server_lr': _LARGE},
    },
    'cocktail_sgd': {
      'algorithm': 'cocktail_sgd',
      'codec': {
        'kind': 'quantized_top_k', 'k': kept, 'bits': 4, 'bucket': 16,
      },
      'mask_ratio': 0.2,
      'sweep': {'client_lr': _LARGE},
    },
    'cd_adam': {
      'algorithm': 'cd_adam',
      **one_gradient,
      'codec': {'kind': 'top_k', 'k': floats // 2},
      'b2': 0.99,
      'sweep': _SMALL,
    },
    'onebit_adam': {
      'algorithm': 'onebit_adam',
      **one_gradient,
      'warmup': max(2, setting.fields['rounds'] // 5),
      'b2': 0.99,
      'sweep': _SMALL,
    },
  }  # fmt: skip
  return setting.fields | own[name]


def share_of(name: str) -> float:
  """The share at which a method is tuned, and races."""
  return 1.0 if name in ('fedadam', 'onebit_adam') else SHARE


def contestants(lab: lab_lib.Lab) -> list[tuple[str, float]]:
  """Every method with its share; a few of them at quick scale."""
  few = ('fedadam', 'safl', 'fetchsgd', 'cd_adam')
  return [(name, share_of(name)) for name in lab.pick(few, METHODS, METHODS)]


def rates(lab: lab_lib.Lab, setting: Setting, name: str) -> Fields:
  """The best of a method's five rates over a quarter of the rounds, one seed.

  By the training loss: the test data are for the races.
  """
  share = share_of(name)
  fields = method(setting, name, share)
  if lab.scale == 'quick':
    return {field: values[-1] for field, values in fields['sweep'].items()}
  rounds = setting.fields['rounds'] // 20 * 5
  fields |= dict.fromkeys(('rounds', 'eval_every', 'checkpoint_every'), rounds)
  runs = lab.sweep(f'{setting.name}/tune/{name}-{share:g}', fields)
  loss = lambda run: run.final('train_loss', last=20)
  return min(runs, key=lambda run: np.nan_to_num(loss(run), nan=np.inf)).values


def race(
  lab: lab_lib.Lab, setting: Setting, name: str, share: float
) -> list[lab_lib.Run]:
  """A method's runs over seeds, with the best rates of `share_of` it."""
  fields = method(setting, name, share) | rates(lab, setting, name)
  fields['sweep'] = {'seed': lab.pick((0, 1), (0, 1, 2), (0, 1, 2))}
  return lab.sweep(f'{setting.name}/race/{name}-{share:g}', fields)


def momentum(lab: lab_lib.Lab, setting: Setting) -> lab_lib.Run:
  """FedAvg with momentum on the server, on one seed, at the best of five rates.

  What is left of Adam where its second moments are as large everywhere.
  """
  rates = lab.pick(
    (0.1,), (0.03, 0.1, 0.3, 1.0, 3.0), (0.03, 0.1, 0.3, 1.0, 3.0)
  )
  fields = setting.fields | {
    'algorithm': 'fedavg',
    'server_optimizer': 'momentum',
    'momentum': 0.9,
    'sweep': {'server_lr': rates},
  }
  loss = lambda run: run.final('train_loss', last=20)
  runs = lab.sweep(f'{setting.name}/momentum', fields)
  return min(runs, key=lambda run: np.nan_to_num(loss(run), nan=np.inf))


def longer(lab: lab_lib.Lab, setting: Setting) -> lab_lib.Run:
  """SAFL over four times the rounds, on one seed."""
  fields = method(setting, 'safl', SHARE) | rates(lab, setting, 'safl')
  rounds = 4 * setting.fields['rounds']
  fields |= {'rounds': rounds, 'checkpoint_every': rounds, 'sweep': None}
  (run,) = lab.sweep(f'{setting.name}/longer', fields)
  return run
