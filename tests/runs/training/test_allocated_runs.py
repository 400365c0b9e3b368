"""Private runs whose cohorts are allocated at random, from config to files."""

from fl_sketch import accounting, runs
from fl_sketch.runs import config
import pytest

from tests.runs.training.test_private_runs import PRIVATE, SAMPLES

ALLOCATED = PRIVATE | {
  'sampling': 'random_allocation', 'cohort': 2, 'rounds': 5, 'eval_every': 5,
  'checkpoint_every': 2,
}  # fmt: skip


def allocated(steps):
  """The mechanism of `ALLOCATED`: epochs of three rounds."""
  fields = {'epoch_steps': 3, 'population': 6, 'max_cohort': 6}
  sampling = accounting.Sampling.RANDOM_ALLOCATION
  return accounting.GaussianMechanism(2.0, steps, sampling, **fields)


@pytest.fixture(scope='module', autouse=True)
def _unproven():
  """Rounds of these cohorts are proved, unlike those of other modules."""


@pytest.fixture(scope='module')
def exp():
  return runs.build(ALLOCATED)


def account(**fields):
  return runs.account(config.Config.from_mapping(ALLOCATED | fields))


def taken(exp, round_index, secret):
  cohort = exp.sample(round_index, secret)
  return set(cohort.ids[cohort.weight > 0].tolist())


def test_every_client_has_one_secret_round_of_an_epoch(exp):
  """Catches coins of the public seed, and epochs of another length."""
  epochs = {}
  for secret in (1, 2):
    cohorts = [taken(exp, r, secret) for r in range(30)]
    assert cohorts == [taken(exp, r, secret) for r in range(30)]
    for first in range(0, 30, 3):
      epoch = cohorts[first : first + 3]
      assert sorted(x for part in epoch for x in part) == [0, 1, 2, 3, 4, 5]
    epochs[secret] = cohorts
  assert epochs[1] != epochs[2]
  assert len(exp.sample(0, 1).ids) == 6
  with pytest.raises(ValueError, match='sampling_seed'):
    exp.sample(0)


@pytest.mark.nightly
def test_the_account_is_that_of_epochs(exp):
  """Catches a run that is accounted as Poisson's, or as whole epochs."""
  assert exp.guarantee.mechanism == allocated(5)
  # It amplifies nothing where the units are samples.
  fields = SAMPLES | {'delta': 1e-3, 'sampling': 'random_allocation'}
  guarantee = runs.build(ALLOCATED | fields).guarantee
  assert guarantee.mechanism.epoch_steps is None


@pytest.mark.nightly
def test_epsilons_are_those_of_epochs(exp):
  """Catches whole epochs that are charged in their first round."""
  guarantee = exp.guarantee
  epsilon = accounting.compute_epsilon(allocated(5), delta=1e-2)
  assert guarantee.statement.epsilon == epsilon
  curve = guarantee.epsilons(range(1, 7))
  assert curve == sorted(set(curve))
  assert curve[4] == pytest.approx(epsilon, rel=1e-6)
  assert epsilon < account(sampling='poisson').statement.epsilon


@pytest.mark.nightly
def test_epochs_may_be_given():
  """Catches a share that is cohort / population in place of 1 / rounds."""
  fields = {'population': 7, 'epoch_rounds': 3, 'cohort': 2}
  mechanism = runs.build(ALLOCATED | fields).guarantee.mechanism
  assert mechanism.epoch_steps == 3
  assert mechanism.sampling_probability == 1 / 3


def test_clients_that_fail_do_not_change_the_account(exp):
  """Catches an account that counts on answers, or a refusal of dropouts."""
  faults = account(dropout=0.2, deadline=1.5)
  assert faults.mechanism == exp.guarantee.mechanism
  assert 'silent or late' in ' '.join(faults.statement.caveats)
