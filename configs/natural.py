"""FLAIR, Reddit, and photos of iNaturalist and Landmarks, by user.

  python docs/examples/natural_readers.py flair flair_federated.hdf5 runs/flair
  fl-sketch train natural:flair --workdir=DIR
  python docs/examples/natural_readers.py photos DIR runs/inaturalist
  fl-sketch train natural:inaturalist --workdir=DIR

The data set is a word of a variant, 'flair' if none is named; others are those
of configs/femnist.py. 'flair' and 'reddit' have the setting of pfl-research
(Granqvist et al., arXiv:2404.06430), from random weights and with accuracies,
and the LSTM of McMahan et al., arXiv:1710.06963. 'inaturalist' and 'landmarks'
have the cohort of Hsu et al., arXiv:2003.08082; model and rates are a start.
"""

from . import ConfigDict, femnist

# Clients that train, and classes, or words of a vocabulary.
_SIZES = {
  'flair': (41_131, 17), 'reddit': (1_660_820, 10_000),
  'inaturalist': (9275, 1203), 'landmarks': (1262, 2028),
}  # fmt: skip
_RATES = {'fedavg': (0.01, 1.0), 'fedadam': (0.01, 0.1, 0.01)}


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are as above."""
  given = femnist.words(variant, *_SIZES)
  kind = next((k for k in _SIZES if k in given), 'flair')
  population, classes = _SIZES[kind]
  c = femnist.clients(kind, population, cohort=200)
  c.test_slice = ':10000'
  if kind == 'reddit':
    c.model, c.loss = 'lstm', 'tokens'
    sizes = {'embedding': 96, 'hidden': 256, 'layers': 1, 'projection': 96}
    c.model_options.update(sizes)
    c.cohort, c.rounds, c.local_steps, c.batch_size = 400, 2000, 3, 16
    rates = {'fedavg': (0.3, 1.0), 'fedadam': (0.3, 0.1, 0.01)}
    return femnist.finish(c, given, rates, parameters=376_144 + 194 * classes)
  c.model, c.model_options.stem_stride = 'resnet18', 2
  c.rounds, c.local_steps, c.batch_size = 5000, 2, 16
  if kind == 'flair':
    c.loss = 'multilabel'
  else:
    c.cohort, c.local_steps = 10, 5
  return femnist.finish(c, given, _RATES, parameters=11_168_832 + 513 * classes)
