"""FedAvg on scikit-learn's digits over two learning rates and three seeds.

  fl-sketch sweep digits_sweep --workdir=DIR

Source: the tuning behind configs/digits_fedavg.py.
"""

from . import ConfigDict, digits_fedavg


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick'."""
  c = digits_fedavg.get_config(variant)
  c.sweep.client_lr = (0.1, 0.3, 0.5, 1.0)
  c.sweep.server_lr = (0.3, 1.0)
  c.sweep.seed = (0, 1, 2)
  return c
