"""Descriptions of mechanisms, and statements of what is guaranteed."""

import itertools
import json

import accounting_reference as ref
from accounting_reference import INF, NAN, ONE, mechanism
from fl_sketch import accounting
from fl_sketch.accounting import GaussianMechanism, statements
import numpy as np
import pytest


def test_numpy_scalars_are_numbers():
  numpy = GaussianMechanism(np.float32(2.0), np.int64(5))
  assert numpy == GaussianMechanism(2.0, 5)
  json.dumps([numpy.noise_multiplier, numpy.steps])
  numbers = np.float64(2), np.float64(1e-5), np.int32(5)
  eps = accounting.compute_epsilon(numpy, delta=1e-5)
  assert accounting.gaussian_epsilon(*numbers) == eps


def test_the_coin_of_an_allocation_follows_from_its_epoch():
  """Catches a probability that stays at its default of 1."""
  for fields in ({}, {'sampling_probability': 0.2}):
    part = mechanism(sampling=ref.ALLOCATION, epoch_steps=5, **fields)
    assert part.sampling_probability == 0.2
    sentence = statement(mechanism=part).sentence()
    assert 'random allocation to one of 5' in sentence


def statement(
  epsilon=5.0, delta=1e-5, mechanism=ONE, trust='central', **fields
):
  spec = epsilon, delta, 'pld', mechanism, trust
  return statements.PrivacyStatement(*spec, **fields)


def test_a_statement_is_plain_json():
  """Catches an infinite epsilon that is no JSON, or an enum."""
  composed = accounting.compose([ONE, ONE])
  plain = statement(INF, mechanism=composed, mu=INF).as_dict()
  assert json.loads(json.dumps(plain, allow_nan=False)) == plain
  assert plain['epsilon'] == plain['mu'] == 'inf'


NOT = {
  'Not private: noise_seed fixes the noise.': {'noise': statements.NOISE[1]},
  'Not private: its cohort is simulated.': {'noise': statements.NOISE[2]},
  'Not private: (inf, 1e-05)-': {'epsilon': INF},
}


@pytest.mark.parametrize('begins', ['(5, 1e-05)-', *NOT])
def test_a_statement_says_for_whom_against_whom_and_whether(begins):
  """Catches a lost "Not private", and a promise of tests without privacy."""
  tests = {'mu': 0.5, 'true_positive_rate': 0.0043}
  spec = {'caveats': ('Mind.', 'And this.'), **NOT.get(begins, {})}
  whole = statement(**tests, **spec)
  first, computed, *rest, last = whole.sentence('in a file').split('\n')
  assert first == whole.headline()
  assert first.startswith(begins)
  assert 'one client (add or remove one) against anyone but the trus' in first
  assert 'the server included' in statement(trust='local').headline()
  assert 'PLD: 1 steps, sampling full' in computed
  assert len(rest) == (begins not in NOT)
  assert all('mu 0.5 of Gaussian' in line for line in rest)
  assert last.endswith('2: in a file')
  lines = [first, computed, *rest, *whole.caveats]
  assert whole.as_dict()['sentence'].split('\n') == lines


def test_what_means_little_is_said_first():
  """Catches epsilon = 10^6, or delta >= 1 / clients, stated like any other."""
  grid = itertools.product([10.0, 10.01, INF], [1e-9, 1 / 49, 0.5], [None, 49])
  for epsilon, delta, units in grid:
    headline = statement(epsilon, delta, units=units).headline()
    *weak, promise = headline.split('\n')
    share = delta >= 0.01 or (units is not None and delta >= 1 / units)
    assert len(weak) == (epsilon < INF and (epsilon > 10 or share))
    assert f'({epsilon:.4g}, {delta:.3g})-differential' in promise
    for line in weak:
      assert (f'share of {units or "all"} clients' in line) == share
      assert (f'epsilon={epsilon:.4g} allows' in line) == (epsilon > 10)


def test_a_statement_refuses_what_means_nothing():
  """Catches a negative epsilon, or a delta of no guarantee."""
  for field, value in ('epsilon', NAN), ('epsilon', -1.0), ('delta', 0.0):
    with pytest.raises(ValueError, match=field):
      statement(**{field: value})
