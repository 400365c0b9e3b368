"""Reconstructs CIFAR-10 images from gradients and sketches, as mnist_attack.py.

  fl-sketch attack cifar10_attack --data_dir=DIR --workdir=runs/cifar10_attack

Single images come back with 32 dB from gradients and 15 dB from tables of
d / 64 numbers, batches of four with 22 dB from gradients; a grey image has 11
and 12 dB. 10 minutes on 2 busy cores.
"""

import ml_collections

from . import attack, is_quick


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick'."""
  quick = is_quick(variant)
  c = attack()
  c.dataset = 'cifar10'
  c.model = 'smooth_lenet'
  c.examples = 2 if quick else 4
  c.batch_sizes = (1,) if quick else (1, 4)

  c.sketches = ('block_cyclic',)
  c.sizes = (3956, 247) if quick else (15826, 3956, 989, 247)
  c.defended_size = 3956
  c.epsilons = (8.0,) if quick else (8.0, 1.0)

  c.tv = 1e-3
  c.steps = 300 if quick else 3000
  c.restarts = 1
  c.start_scale = 0.01  # from larger starts half of the searches get stuck
  c.success = 0.1
  return c
