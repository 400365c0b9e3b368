"""Audits of every private algorithm, right (at 1e-6) and broken (at 0.05)."""

import audit_games as common
from fl_sketch import algorithms, sketches
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.auditing import canaries
import pytest

LONG = pytest.mark.long
D = 32
TABLE = sketches.block_cyclic(8)
HASHES = sketches.count_sketch(2, 8)
CASES = {
  'dp_fedavg': ({}, {}), 'dp_normfedavg': ({}, {}),
  'per_leaf': ({'per_leaf': True}, {}),
  'iterative_sketching': ({}, {'sketch': TABLE}),
  'before_sketch': ({'before_sketch': True}, {'sketch': TABLE}),
  'safl': ({}, {'sketch': TABLE}), 'fedsketch_privix': ({}, {'sketch': HASHES}),
}  # fmt: skip
NAMES = {'per_leaf': 'dp_fedavg', 'before_sketch': 'iterative_sketching'}


def check(game_with, *too_little):
  for noise in 1.0, *too_little:
    report = common.play(game_with(noise), 0.05 if noise < 1 else common.NEVER)
    assert report.violated == (noise < 1), report.text()


@LONG
@pytest.mark.parametrize('steps_and_q', [(1, 1.0), (20, 0.2)])
@pytest.mark.parametrize('case', CASES)
def test_every_algorithm_hides_what_it_claims_and_no_more(case, steps_and_q):
  steps, q = steps_and_q
  claimed = common.claim(1.0, steps, q, population=4 if q == 1 else 10)
  privacy, options = CASES[case]
  make = common.algorithm(NAMES.get(case, case), claimed, privacy, **options)
  canary = common.adversarial(options['sketch'], steps, D) if options else None
  game_with = lambda noise: common.game_of(make, claimed, noise, D, canary)
  check(game_with, 0.85, 0.7)


def sample_game(noise):
  claimed = common.claim(1.0, 20, 0.25, population=8, unit='sample')
  make = algorithms.make(
    'private_iterative_sketching', canaries.inner_product, local_steps=4,
    expected_batch=2, sketch=TABLE,
  )  # fmt: skip
  canary = common.adversarial(TABLE, 5, D)
  game = common.game_of(make, claimed, noise, D, canary)
  return game._replace(steps_per_round=4)


@LONG
def test_samples_are_hidden_by_private_local_steps():
  check(sample_game, 0.6)


@LONG
def test_an_allocation_hides_what_it_claims_and_no_more():
  """Catches coins of a game that are not those of the claim."""
  claimed = types.GaussianMechanism(
    noise_multiplier=1.0, steps=20, sampling=types.Sampling.RANDOM_ALLOCATION,
    epoch_steps=5, population=10,
  )  # fmt: skip
  make = common.algorithm('dp_fedavg', claimed)
  check(lambda noise: common.game_of(make, claimed, noise, D), 0.7)
