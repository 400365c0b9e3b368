"""Every algorithm on MNIST at one uplink bit a parameter, tuned on an MLP.

  fl-sketch compare --data_dir=DIR --workdir=runs/comparison

runs all of them; one alone, with the learning rates it is tuned over:

  fl-sketch sweep mnist_comparison:safl,mlp,iid --data_dir=DIR

Source: the setting of Haddadpour et al., arXiv:2008.04975, section 6: 50
clients, half of them a round (all if the algorithm needs it), equal
shares or 2 classes a client; 60 rounds of 5 local steps of batch 32, or of one
gradient of 160 samples. Four points of learning rates each, tuned on an MLP
784-64-10, then LeNet-5 and three seeds. What a client sends is matched to
d / 32 floats, as many bits as parameters; FedSGD, FedAvg, SCAFFOLD and QSGD
cannot send so little. The table is docs/results/MNIST-Comparison.json.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections

from . import new

PARAMETERS = {'mlp': 50_890, 'lenet5': 61_706}
PARTITIONS = ('iid', 'two_classes')
_STEPS = {'client_lr': (0.05, 0.1), 'server_lr': (0.3, 1.0)}
# SCAFFOLD's variates need K eta L < 1: LeNet-5 diverges at 0.05.
_SMALL_STEPS = {'client_lr': (0.01, 0.02), 'server_lr': (0.3, 1.0)}
_ADAPTIVE = {'client_lr': (0.05, 0.1), 'server_lr': (0.01, 0.03)}
_RATES = {'server_lr': (0.003, 0.01, 0.03, 0.1)}
_SMALL_RATES = {'server_lr': (0.0003, 0.001, 0.003, 0.01)}


def methods(floats: int) -> dict[str, dict[str, Any]]:
  """Returns name -> config fields with `sweep`, for an uplink of `floats`."""
  one_gradient = {'local_steps': 1, 'batch_size': 160}
  everybody = {'cohort': 50}
  cyclic = {'kind': 'block_cyclic', 'size': floats}
  # A tree over 50 clients sends 2 x 49 tables.
  of_tree = {'kind': 'block_cyclic', 'size': floats * 50 // 98}
  layerwise = {'kind': 'layerwise', 'factory': 'block_cyclic', 'size': floats}
  layerwise['allocation'] = 'sqrt'
  adam = {'server_optimizer': 'adam', 'b2': 0.99}
  top_k = {'kind': 'top_k', 'k': floats // 2}
  rand_k = {'kind': 'rand_k', 'k': floats}
  feedback = {'error_feedback': True}
  heavy = {'k': floats // 16}
  # Of each value kept: an int32, half a byte, and a sixteenth of a scale.
  kept = int(floats / (1 + 1 / 8 + 1 / 16)) // 16 * 16
  cocktail = {'kind': 'quantized_top_k', 'k': kept, 'bits': 4, 'bucket': 16}
  return {
    'fedsgd': _of('fedsgd', _RATES, **one_gradient),
    'fedavg': _of('fedavg', _STEPS),
    'fedavg_adam': _of('fedavg', _ADAPTIVE, **adam),
    'scaffold': _of('scaffold', _SMALL_STEPS),
    'iterative_sketching': _of('iterative_sketching', _STEPS, sketch=cyclic),
    'decentralised': _of(
      'decentralised', _STEPS, **everybody, options={'graph': 'grid'},
      sketch=of_tree,
    ),
    'fedsketch_privix': _of(
      'fedsketch_privix', _STEPS, sketch=_rows(20, floats)
    ),
    'fedsketch_heaprix': _of(
      'fedsketch_heaprix', _STEPS, sketch=_rows(20, 3 * floats // 8),
      options={'k': floats // 4},
    ),
    'fedsketchgate': _of(
      'fedsketchgate', _STEPS, **everybody, sketch=_rows(20, floats)
    ),
    'diffsketch': _of(
      'diffsketch', {'client_lr': (0.003, 0.01, 0.03, 0.1)},
      sketch=_rows(20, floats),
    ),
    'safl': _of('safl', _ADAPTIVE, sketch=cyclic, **adam),
    'safl_layerwise': _of('safl', _ADAPTIVE, sketch=layerwise, **adam),
    'sketched_sgd': _of(
      'sketched_sgd', _RATES, **one_gradient, options=heavy,
      sketch=_rows(5, 3 * floats // 4),
    ),
    'fetchsgd': _of(
      'fetchsgd', _RATES, **one_gradient, options=heavy,
      sketch=_rows(5, floats),
    ),
    'fedcom_rand_k': _of('fedcom', _STEPS, codec=rand_k),
    'fedcom_qsgd': _of('fedcom', _STEPS, codec={'kind': 'qsgd', 'levels': 1}),
    'feedback_top_k': _of('fedcom', _STEPS, codec=top_k, options=feedback),
    'feedback_sign': _of(
      'fedcom', _STEPS, codec={'kind': 'sign', 'norm': 'l1'}, options=feedback
    ),
    'fedcomgate': _of('fedcomgate', _STEPS, **everybody, codec=rand_k),
    'signsgd': _of('signsgd', _SMALL_RATES, **one_gradient),
    'marina': _of(
      'marina', _RATES, **one_gradient,
      codec={'kind': 'rand_k', 'k': floats // 2},
      options={'sync_probability': 1 / 64},
    ),
    'ef21': _of('ef21', _RATES, **one_gradient, codec=top_k),
    'cd_adam': _of(
      'cd_adam', _SMALL_RATES, **one_gradient, codec=top_k, b2=0.99
    ),
    'onebit_adam': _of(
      'onebit_adam', _SMALL_RATES, **one_gradient, options={'warmup': 10},
      b2=0.99,
    ),
    'cocktail_sgd': _of(
      'cocktail_sgd', _STEPS, codec=cocktail, options={'mask_ratio': 0.2}
    ),
    # Beside the budget: the tables of the FedSKETCH paper.
    'privix_20x40': _of('fedsketch_privix', _STEPS, sketch=_rows(20, 800)),
    'heaprix_20x40': _of(
      'fedsketch_heaprix', _STEPS, sketch=_rows(20, 800), options={'k': 40}
    ),
    # As many floats as heaprix_20x40 sends.
    'privix_20x82': _of('fedsketch_privix', _STEPS, sketch=_rows(20, 1640)),
  }  # fmt: skip


def _of(algorithm: str, sweep: Any, **fields: Any) -> dict[str, Any]:
  return {'algorithm': algorithm, 'sweep': sweep, **fields}


def _rows(rows: int, floats: int) -> dict[str, Any]:
  return {'kind': 'count_sketch', 'rows': rows, 'cols': floats // rows}


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config.

  Args:
    variant: 'METHOD,MODEL,PARTITION'; '' is 'safl,mlp,iid', and 'quick' is
      that with 6 rounds, at the first of its rates.
  """
  variants = ('', 'quick', 'METHOD,MODEL,PARTITION')
  if variant not in variants and variant.count(',') != 2:
    raise ValueError(f'{variant=} is not one of {variants}.')
  point = 'safl,mlp,iid' if variant in variants else variant
  name, model, partition = point.split(',')
  if partition not in PARTITIONS:
    raise ValueError(f'{partition=} is not one of {PARTITIONS}.')
  if model not in PARAMETERS:
    raise ValueError(f'{model=} is not one of {tuple(PARAMETERS)}.')
  c = new()
  c.dataset = 'mnist'
  c.model = model
  c.population = 50
  c.cohort = 25
  if partition == 'two_classes':
    c.partition = 'classes_per_client'
    c.classes = 2
  c.rounds = 60
  c.eval_every = 20
  fields = methods(PARAMETERS[model] // 32)
  if name not in fields:
    raise ValueError(f'method={name!r} is not one of {tuple(fields)}.')
  _fill(c, fields[name])
  if variant == 'quick':
    c.rounds = 6
    _fill(
      c, {rate: values[0] for rate, values in fields[name]['sweep'].items()}
    )
  return c


def _fill(c: Any, fields: Mapping[str, Any]) -> None:
  for name, value in fields.items():
    if isinstance(value, Mapping):
      _fill(c[name], value)
    else:
      c[name] = value
