"""FedSKETCH with PRIVIX: LeNet-5 on MNIST at 12 times fewer bytes up.

  fl-sketch train mnist_fedsketch --data_dir=DIR --workdir=runs/mnist_fedsketch

Source: Haddadpour et al., arXiv:2008.04975, Algorithm 5 and section 6 with
(t, m) = (50, 100), on the data of configs/mnist_fedavg.py. 60 s on 2 cores.
"""

from . import ConfigDict, mnist_fedavg


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds)."""
  c = mnist_fedavg.get_config(variant)
  c.algorithm = 'fedsketch_privix'
  c.sketch.kind, c.sketch.rows, c.sketch.cols = 'count_sketch', 50, 100
  return c
