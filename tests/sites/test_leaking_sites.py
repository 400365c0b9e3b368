"""Own algorithms that leak are refused before sites are asked, or answer."""

from fl_sketch import algorithms, models
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.runs.config import Config
from fl_sketch.sites import federation, own_data, site
from fl_sketch.sites.transport import LocalSites
import leaks
import numpy as np
import pytest
import registered

from tests.privacy.test_noninterference import check_line_of, refused

FIELDS = {
  'dataset': 'digits', 'model': 'of_leaks', 'population': 4, 'cohort': 4,
  'rounds': 2, 'local_steps': 2, 'batch_size': 4, 'clip_norm': 0.5,
  'noise_multiplier': 2.0, 'noise_seed': 3, 'delta': 1e-2,
  'standardize': False, 'algorithm': 'leaking', 'client_lr': 0.1,
}  # fmt: skip
OWN = {'x': np.zeros((8, 8, 8, 1), np.uint8), 'y': np.arange(8)}


@pytest.fixture
def leak():
  """Registers an algorithm; sets which leak it has."""
  name = ['none']

  def of_leaks(num_classes):
    zeros = {k: np.zeros(x.shape[1:], 'f') for k, x in PARAMS.items()}
    classes = np.eye(2, num_classes, dtype='f')
    apply = lambda p, x, key: (x[:, 0, :4, 0] @ p['w'] + p['b'][None]) @ classes
    return models.Model(lambda key, x: zeros, apply)

  def leaking(task, hp, *, privacy: private_mean.PrivateMean):
    """A private mean with a leak."""
    return leaks.make(name[0], privacy, task.steps(hp))

  with registered.forgotten():
    models.register(of_leaks)
    algorithms.register(leaking)
    yield name


PARAMS = leaks.cohort().batches
NAMES = leaks.LEAKS | leaks.BARE


@pytest.mark.representatives('plain_mean', 'server_noise')
@pytest.mark.parametrize('name', NAMES)
def test_a_leak_reaches_no_site(name, leak, tmp_path):
  """Catches an entry of sites that takes a round without its proof."""
  leak[0], asked, public = name, [], False
  sites = LocalSites(dict.fromkeys('0123', asked.append))
  own = lambda c: own_data.problem(c, 0, OWN)
  start = {
    'server': lambda c: federation.run(c, sites, tmp_path, progress=False),
    'site': lambda c: site.client(c, 0, own),
  }
  for trust in 'central', 'local':
    c = Config.from_mapping(FIELDS | {'trust': trust})
    # Whose clients add the noise tells who takes part.
    if public or (trust == 'central' and name in leaks.BARE):
      continue
    match = f'({NAMES[name][1]}|{leaks.OF_SERVER})'
    for begin in start.values():
      with refused(f"'leaking' .*{match}") as error:
        begin(c)
      check_line_of(error, name)
      public |= 'cohort.weight' in str(error.value)
  assert not asked
  assert not any(tmp_path.iterdir())


@pytest.mark.representatives('local')
@pytest.mark.parametrize('trust', ['central', 'local'])
def test_the_same_algorithm_without_a_leak_joins(trust, leak):
  """Catches refusals of something else than the leaks."""
  own = lambda c: own_data.problem(c, 0, OWN)
  c = Config.from_mapping(FIELDS | {'trust': trust})
  assert leak == ['none']
  assert site.client(c, 0, own).programs.private
