"""FEMNIST: the CNN of Reddi et al. on the handwriting of 3,400 people.

  fl-sketch import-data femnist DIR --to=runs/femnist
  fl-sketch train femnist:onebit --workdir=DIR

Source: Reddi et al., arXiv:2003.00295, EMNIST CR: model, cohort, batch, rounds,
the authors' best rates and epsilon; accuracy on the writers' test images. All
clients make as many steps: about an epoch of a client of mean size. Words of a
variant, with commas between: 'fedadam' (if none is named), 'fedavg', 'onebit'
and 'quick', a few steps. 'onebit' is SAFL with the rates of FedAdam, which were
not tuned for it, and one-bit tables both ways, in 1 % of the model's bytes.
"""

from . import ConfigDict, new

_ALGORITHMS = ('fedadam', 'fedavg', 'onebit')


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are as above."""
  given = words(variant)
  c = clients('femnist', population=3400, cohort=10)
  c.model = 'emnist_cnn'
  c.local_steps, c.batch_size, c.rounds = 10, 20, 1500
  rates = {'fedavg': (0.1, 1.0), 'fedadam': (10**-1.5, 10**-2.5, 1e-4)}
  return finish(c, given, rates, parameters=1_206_590)


def words(variant: str, *data: str) -> set[str]:
  """The words of a variant, among data sets, algorithms and 'quick'."""
  given, names = {*variant.split(',')} - {''}, (*data, *_ALGORITHMS, 'quick')
  if not given <= {*names}:
    raise ValueError(f'{variant=} must be words of {names}.')
  return given


def clients(kind: str, population: int, cohort: int) -> ConfigDict:
  """A config of the store runs/KIND."""
  c = new()
  c.dataset, c.dataset_options.folder = 'store', f'runs/{kind}'
  c.population, c.cohort = population, cohort
  c.weights = 'samples'
  c.eval_every = c.checkpoint_every = 50
  return c


def finish(
  c: ConfigDict,
  given: set[str],
  rates: dict[str, tuple[float, ...]],
  parameters: int,
) -> ConfigDict:
  """Set the algorithm, and the fields of 'quick', by words of a variant.

  Rates are of clients and server by FedAvg, and with epsilon by FedAdam.
  """
  if 'fedavg' in given:
    c.client_lr, c.server_lr = rates['fedavg']
  else:
    c.client_lr, c.server_lr, c.eps = rates['fedadam']
    c.server_optimizer, c.b1, c.b2 = 'adam', 0.9, 0.999
  if 'onebit' in given:
    c.algorithm = 'safl'
    c.sketch.kind, c.sketch.size = 'block_srht', parameters * 32 // 100
    c.codec.kind, c.codec.rotate, c.downlink_codec.kind = 'eden', False, 'eden'
  if 'quick' in given:
    c.cohort, c.rounds, c.local_steps, c.batch_size = 2, 2, 1, 2
    c.eval_every = c.checkpoint_every = 2
  return c
