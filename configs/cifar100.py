"""CIFAR-100 over 500 clients by Pachinko allocation, a ResNet-18.

  fl-sketch import-data cifar100 DIR --to=runs/cifar100
  fl-sketch train cifar100:fedavg --workdir=DIR

Source: Reddi et al., arXiv:2003.00295, CIFAR-100: cohort, batch, rounds, and
the rates and epsilon that the authors' code calls the best ones; accuracy on
the test images. They crop images to 24 x 24 and flip them; here they are whole.
The ResNet-18 with GroupNorm is `models.networks`. Variants: configs/femnist.py.
"""

from . import ConfigDict, femnist


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are those of `femnist`."""
  given = femnist.words(variant)
  c = femnist.clients('cifar100', population=500, cohort=10)
  c.model = 'resnet18'
  c.local_steps, c.batch_size, c.rounds = 5, 20, 4000
  rates = {'fedavg': (0.1, 10**0.5), 'fedadam': (10**-1.5, 1.0, 0.1)}
  return femnist.finish(c, given, rates, parameters=11_220_132)
