"""CIFAR-100 over 500 clients by Pachinko allocation, a ResNet-18.

  fl-sketch import-data cifar100 DIR --to=runs/cifar100
  fl-sketch train cifar100:fedavg --workdir=DIR

Source: Reddi et al., arXiv:2003.00295, CIFAR-100: cohort, batch, rounds, and
the authors' best rates and epsilon; accuracy on the test images, which they
crop and flip, and which are whole here. Variants: configs/femnist.py.
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
