"""SAFL with Adam on the server: LeNet-5 on MNIST at 12 times fewer bytes up.

  fl-sketch train mnist_safl --data_dir=DIR --workdir=runs/mnist_safl

Source: Chen, Li, Banerjee, arXiv:2411.06770, Algorithm 1 with Adam, on the data
of configs/mnist_fedavg.py. 100 times fewer bytes: `--config.sketch.size=617`.
40 s on 2 cores.
"""

from . import ConfigDict, mnist_fedavg


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds)."""
  c = mnist_fedavg.get_config(variant)
  c.algorithm = 'safl'
  c.sketch.kind, c.sketch.size = 'block_cyclic', 5142  # 61,706 / 12
  c.server_optimizer, c.b2 = 'adam', 0.99
  c.server_lr, c.final_server_lr = 0.01, 1e-5
  return c
