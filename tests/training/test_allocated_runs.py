"""Private runs whose cohorts are allocated at random, from config to files."""

import json
import shutil

import chex
from fl_sketch import experiment, training
from fl_sketch.experiment import config
from fl_sketch.privacy import accounting
from jax import flatten_util
import numpy as np
import pytest
from runs import rows
from scipy import stats

from tests.training.test_private_runs import PRIVATE, SAMPLES

ALLOCATED = PRIVATE | {
  'sampling': 'random_allocation', 'cohort': 2, 'rounds': 5, 'eval_every': 5,
  'checkpoint_every': 2,
}  # fmt: skip


def allocated(steps, **fields):
  """The mechanism of `ALLOCATED`: epochs of three rounds."""
  return accounting.GaussianMechanism(
    2.0,
    steps,
    accounting.Sampling.RANDOM_ALLOCATION,
    epoch_steps=3,
    population=6,
    max_cohort=6,
    **fields,
  )


def taken(exp, round_index, secret):
  cohort = exp.sample(round_index, secret)
  return set(cohort.ids[cohort.weight > 0].tolist())


def test_every_client_has_one_secret_round_of_an_epoch():
  """Catches coins of the public seed, and epochs of another length."""
  exp = experiment.build(ALLOCATED)
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
  with pytest.raises(ValueError, match='sampling_seed if, and only if'):
    exp.sample(0)


def test_the_account_is_that_of_epochs():
  """Catches a run that is accounted as Poisson's, or as whole epochs."""
  guarantee = experiment.build(ALLOCATED).guarantee
  assert guarantee.mechanism == allocated(5)
  sentence = guarantee.statement.sentence()
  assert '5 steps, sampling random allocation to one of 3' in sentence
  epsilon = accounting.compute_epsilon(allocated(5), delta=1e-2)
  assert guarantee.statement.epsilon == epsilon
  curve = guarantee.epsilons(range(1, 7))
  assert curve == sorted(set(curve))
  assert curve[4] == pytest.approx(epsilon, rel=1e-6)
  poisson = config.Config.from_mapping(ALLOCATED | {'sampling': 'poisson'})
  coins = experiment.account(poisson)
  assert epsilon < coins.statement.epsilon


def test_epochs_may_be_given():
  """Catches a share that is cohort / population in place of 1 / rounds."""
  fields = {'population': 7, 'epoch_rounds': 3, 'cohort': 2}
  guarantee = experiment.build(ALLOCATED | fields).guarantee
  assert guarantee.mechanism.epoch_steps == 3
  assert guarantee.mechanism.sampling_probability == 1 / 3


def test_the_largest_cohort_is_passed_at_a_chance_within_delta():
  """Catches cohorts that are cut off as often as in a run without privacy."""
  large = {'population': 2000, 'cohort': 20, 'delta': 1e-5}
  c = config.Config.from_mapping(ALLOCATED | large)
  size = experiment.account(c).mechanism.max_cohort
  assert stats.binom.sf(size, 2000, 0.01) <= 1e-18
  assert stats.binom.sf(size - 1, 2000, 0.01) > 1e-18


def test_clients_that_fail_do_not_change_the_account():
  """Catches an account that counts on answers, or a refusal of dropouts."""
  account = lambda **fields: experiment.account(
    config.Config.from_mapping(ALLOCATED | fields)
  )
  plain, faults = account(), account(dropout=0.2, deadline=1.5)
  assert faults.mechanism == plain.mechanism
  assert 'silent or late' in ' '.join(faults.statement.caveats)


@pytest.mark.nightly
def test_an_allocation_does_not_amplify_the_privacy_of_samples():
  """Catches an epoch of rounds in a mechanism whose units are samples."""
  fields = ALLOCATED | SAMPLES | {'delta': 1e-3}
  one, other = (
    experiment.build(fields | {'sampling': kind}).guarantee
    for kind in ('random_allocation', 'fixed_size')
  )
  assert one == other
  assert one.mechanism.epoch_steps is None


@pytest.mark.nightly
def test_a_run_trains_and_a_resumed_one_goes_on_in_its_epoch(tmp_path):
  """Catches a resumed run that begins an epoch of its own."""
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  exp = experiment.build(ALLOCATED)
  result = training.train(exp, whole, progress=False)
  assert np.isfinite(result.row['test_loss'])
  records = rows(whole)
  counts = [row['participants'] for row in records]
  assert sum(counts[:3]) == 6
  want = [
    accounting.compute_epsilon(allocated(n), delta=1e-2) for n in range(1, 6)
  ]
  epsilons = [row['epsilon'] for row in records]
  np.testing.assert_allclose(epsilons, want, rtol=1e-6)
  privacy = json.loads((whole / 'summary.json').read_text())['privacy']
  assert privacy['mechanism']['sampling'] == 'random_allocation'
  assert privacy['mechanism']['epoch_steps'] == 3
  shutil.copytree(whole, cut)
  shutil.rmtree(cut / 'checkpoints' / '5')
  again = training.train(exp, cut, progress=False)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(cut) == records


@pytest.mark.nightly
def test_the_noise_of_a_simulated_cohort_is_measured(tmp_path):
  """Catches noise of another size than z C / simulated_cohort on the mean.

  Two runs of one round differ by their noise alone. The 650 squares of its
  numbers are off by the bounds with probability 2e-7.
  """
  fields = {
    'sampling': 'fixed_size', 'cohort': 6, 'simulated_cohort': 60,
    'client_lr': 1.0, 'rounds': 1, 'clip_norm': 0.5,
  }  # fmt: skip
  ends = []
  for seed in (4, 5):
    exp = experiment.build(ALLOCATED | fields | {'noise_seed': seed})
    folder = tmp_path / str(seed)
    state = training.train(exp, folder, progress=False).state
    ends.append(flatten_util.ravel_pytree(state.params)[0])
  noise = np.asarray(ends[0] - ends[1], np.float64) / 2**0.5
  squares = np.square(noise / (2.0 * 0.5 / 60))
  low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], len(noise))
  assert low < squares.sum() < high
  privacy = json.loads((folder / 'summary.json').read_text())['privacy']
  assert privacy['noise'] == 'simulated: not private'
