"""Reconstructs MNIST images from gradients, sketches and private sketches.

  fl-sketch attack mnist_attack --data_dir=DIR --workdir=runs/mnist_attack

Source: Zhu, Liu and Han, arXiv:1906.08935, whose smooth LeNet is attacked, with
the total variation of Geiping et al., arXiv:2003.14053; sketches and noise as
in SAFL (Chen, Li, Banerjee, arXiv:2411.06770) made private: a client's table
is clipped, and a round's noise is added to the sum of tables. Scores:
docs/results/S0-Images.json; 15 minutes on 2 busy cores.
"""

import ml_collections

from . import attack, is_quick


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick' (2 images, 2 sketches)."""
  quick = is_quick(variant)
  c = attack()
  c.dataset = 'mnist'
  c.model = 'smooth_lenet'
  c.examples = 2 if quick else 8
  c.batch_sizes = (1,) if quick else (1, 4)

  c.sketches = ('block_cyclic',)
  c.sizes = (3356, 210) if quick else (13426, 3356, 839, 210)  # d / 1 to d / 64
  c.defended_size = 3356
  c.epsilons = (8.0,) if quick else (8.0, 1.0)

  c.tv = 1e-4
  c.steps = 300 if quick else 2000
  c.restarts = 1
  c.start_scale = 0.1
  c.success = 0.1
  return c
