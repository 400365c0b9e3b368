"""FedAvg and DiLoCo on scikit-learn's digits: dense baselines of quickstart.

  fl-sketch train digits_fedavg --workdir=DIR
  fl-sketch train digits_fedavg:diloco --workdir=DIR

Sources: McMahan et al., arXiv:1602.05629, Algorithm 1; Douillard et al.,
arXiv:2311.08105, Algorithm 1. Data and model of configs/quickstart.py. The rate
of FedAvg is the best of 0.03, 0.1, 0.3, 0.5, 0.8 and 1; those of DiLoCo's
server are its authors'. 2 s of training. `quick` and `diloco,quick`: a few
rounds.
"""

from . import ConfigDict, is_quick, quickstart


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; variants are as above."""
  quick = is_quick(variant, ('', 'quick', 'diloco', 'diloco,quick'))
  c = quickstart.get_config('quick' if quick else '')
  quickstart.make_dense(c)
  c.client_lr = 0.5
  if variant.startswith('diloco'):
    c.local_steps, c.client_lr = 20, 1e-3
    c.local_optimizer.kind, c.local_optimizer.keep_state = 'adamw', True
    c.server_optimizer, c.momentum, c.server_lr = 'nesterov', 0.9, 0.7
  return c
