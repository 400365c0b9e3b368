"""FedAvg and DiLoCo on scikit-learn's digits: dense baselines of quickstart.

  fl-sketch train digits_fedavg --workdir=DIR
  fl-sketch train digits_fedavg:diloco --workdir=DIR

Sources: McMahan et al., arXiv:1602.05629, Algorithm 1; Douillard et al.,
arXiv:2311.08105, Algorithm 1, which is FedAvg whose clients make H steps of an
AdamW that they keep, and whose server has the momentum of Nesterov. Both on the
data and the model of configs/quickstart.py. The rate of FedAvg is the best of
0.03, 0.1, 0.3, 0.5, 0.8 and 1; those of DiLoCo's server are its authors'. 2 s
of training. `quick` and `diloco,quick`: a few rounds.
"""

import ml_collections

from . import quickstart

_VARIANTS = ('', 'quick', 'diloco', 'diloco,quick')


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config.

  Args:
    variant: '', 'quick', 'diloco' or 'diloco,quick'.
  """
  if variant not in _VARIANTS:
    raise ValueError(f'Expected {variant=} in {_VARIANTS}.')
  c = quickstart.get_config('quick' if variant.endswith('quick') else '')
  c.client_lr = 0.5
  c.algorithm = 'fedavg'
  c.sketch.kind = c.sketch.size = None
  c.server_lr = 1.0
  c.server_optimizer = None
  c.b2 = None
  c.final_server_lr = None
  if variant.startswith('diloco'):
    c.local_steps = 20
    c.client_lr = 1e-3
    c.local_optimizer.kind, c.local_optimizer.keep_state = 'adamw', True
    c.server_optimizer, c.momentum, c.server_lr = 'nesterov', 0.9, 0.7
  return c
