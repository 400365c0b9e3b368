"""Iterative sketching: LeNet-5 on MNIST at 12 times fewer bytes up.

  fl-sketch train mnist_iterative_sketching --data_dir=DIR

Source: Song, Wang, Yu, Zhang, ICML 2023, Algorithm 1, on the data of
configs/mnist_fedavg.py; the paper has no experiments. 35 s on 2 cores.
"""

from . import ConfigDict, mnist_fedavg


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds)."""
  c = mnist_fedavg.get_config(variant)
  c.algorithm = 'iterative_sketching'
  c.sketch.kind, c.sketch.size = 'block_cyclic', 5142  # 61,706 / 12
  return c
