"""FedAvg on scikit-learn's digits: the dense baseline of the quickstart.

  fl-sketch train digits_fedavg --workdir=DIR

Source: McMahan et al., arXiv:1602.05629, Algorithm 1, on the data and the model
of configs/quickstart.py. The rate is the best of 0.03, 0.1, 0.3, 0.5, 0.8 and
1; 2 s of training.
"""

import ml_collections

from . import quickstart


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick'."""
  c = quickstart.get_config(variant)
  c.client_lr = 0.5
  c.algorithm = 'fedavg'
  c.sketch.kind = c.sketch.size = None
  c.server_lr = 1.0
  c.server_optimizer = None
  c.b2 = None
  c.final_server_lr = None
  return c
