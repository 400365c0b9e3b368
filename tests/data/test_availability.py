"""Participants, stragglers and dropouts of a round."""

import chex
from fl_sketch import runs
from fl_sketch.data import availability
from fl_sketch.rounds.fates import (
  DROPPED_OUT,
  NOT_SELECTED,
  PARTICIPATED,
  STRAGGLER,
)
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures('unproven')
N, MANY = 60, 20_000
IDS = np.arange(MANY)
ALL = np.ones(MANY, bool)
FIELDS = dict(dataset='quadratics', population=N, cohort=20, batch_size=1)
FAULTS = dict(over_sampling=1.5, dropout=0.2, deadline=1.5)
PRIVATE = dict(
  algorithm='dp_fedavg', noise_multiplier=1.0, clip_norm=1.0, delta=1e-5,
  accountant='rdp', rounds=10, sampling='poisson',
)  # fmt: skip


def outcomes(ids=IDS, present=ALL, seed=0, round=3, **options):
  return availability.outcomes(seed, round, ids, present, **options)


def count(outcome, code):
  return int((outcome == code).sum())


def deviations(estimate, expected, variance):
  """|z| > 5.4 has probability 7e-8."""
  return abs(estimate - expected) / variance**0.5


def test_every_selected_client_has_one_outcome_and_padding_none():
  present = IDS < MANY - 7
  outcome = outcomes(present=present, cohort=9_000, dropout=0.3, deadline=1.2)
  assert outcome.dtype == np.int8
  assert ((outcome == NOT_SELECTED) == ~present).all()
  codes = {NOT_SELECTED, PARTICIPATED, STRAGGLER, DROPPED_OUT}
  assert {*outcome.tolist()} == codes
  assert count(outcome, PARTICIPATED) <= 9_000
  assert (outcomes() == PARTICIPATED).all()  # without faults
  for deadline, code in (1.0, PARTICIPATED), (0.99, STRAGGLER):
    assert (outcomes(sigma=0.0, deadline=deadline) == code).all()


def test_dropouts_are_as_many_as_expected_and_others_every_round():
  dropout = 0.2
  one, other = (
    outcomes(round=r, dropout=dropout) == DROPPED_OUT for r in range(2)
  )
  both = one & other, dropout**2
  for dropped, p in ((one, dropout), (other, dropout), both):
    assert deviations(dropped.sum(), MANY * p, MANY * p * (1 - p)) < 5.4


def test_the_first_answers_are_taken_and_equal_times_are_no_order_of_ids():
  """Catches late answers that are taken, and low ids first (hypergeometric)."""
  times = availability.response_times(0, 3, IDS, 1.0)
  outcome = outcomes(cohort=5_000, dropout=0.1)
  assert count(outcome, PARTICIPATED) == 5_000
  late = times[outcome == STRAGGLER]
  assert times[outcome == PARTICIPATED].max() <= late.min()
  taken = outcomes(cohort=MANY // 2, sigma=0.0) == PARTICIPATED
  first = taken[: MANY // 2].sum()
  assert deviations(first, MANY / 4, MANY / 16) < 5.4


def test_an_outcome_depends_on_seed_round_and_client_alone():
  options = {'dropout': 0.3, 'deadline': 1.0}
  outcome, order = outcomes(**options), IDS[::-1]
  np.testing.assert_array_equal(outcome, outcomes(**options))
  np.testing.assert_array_equal(outcome[order], outcomes(ids=order, **options))
  for other in ({'seed': 1}, {'round': 4}):
    assert (outcome != outcomes(**options, **other)).mean() > 0.1


def test_times_are_log_normal_and_half_of_them_a_clients_own():
  """Deviations of a mean, a variance and a correlation of normals."""
  sigma = 0.8
  times = [availability.response_times(0, r, IDS, sigma) for r in (0, 1)]
  x, y = (np.log(t) / sigma for t in times)
  assert deviations(x.mean(), 0, 1 / MANY) < 5.4
  assert deviations(x.var(), 1, 2 / MANY) < 5.4
  assert deviations((x * y).mean(), 0.5, 1.25 / MANY) < 5.4


def test_only_participants_of_a_cohort_have_weight():
  """Catches stragglers that are averaged, and draws of another round."""
  exp = runs.build(FIELDS | FAULTS | {'weights': 'samples'})
  cohort = exp.sample(5)
  assert len(set(cohort.ids.tolist())) == 30
  np.testing.assert_array_equal(
    cohort.weight > 0, cohort.outcome == PARTICIPATED
  )
  assert {*cohort.outcome.tolist()} == {PARTICIPATED, STRAGGLER, DROPPED_OUT}
  chex.assert_trees_all_equal(exp.sample(5), cohort)


@pytest.mark.parametrize('sampling', ['with_replacement', 'poisson'])
def test_other_sampling_keeps_multiplicities_and_waits_for_all(sampling):
  fields = FIELDS | {'sampling': sampling}
  whole = runs.build(fields)
  some = runs.build(fields | {'dropout': 0.3, 'deadline': 1e9})
  most = 0
  for r in range(20):
    weight, cohort = whole.sample(r).weight, some.sample(r)
    assert cohort.outcome is not None
    taken = cohort.outcome == PARTICIPATED
    np.testing.assert_array_equal(cohort.weight, np.where(taken, weight, 0))
    assert ((cohort.outcome == NOT_SELECTED) == (weight == 0)).all()
    most = max(most, weight.max())
    assert not count(cohort.outcome, STRAGGLER)  # however many they are
  assert (most > 1) == (sampling == 'with_replacement')


def test_byzantine_clients_are_the_same_in_every_round_and_as_many_as_said():
  """Catches clients that change sides, or padding that attacks."""
  fields = {'byzantine': 0.2, 'attack': 'nan', 'sampling': 'poisson'}
  exp = runs.build(FIELDS | fields)
  want = availability.byzantine_clients(0, N, 0.2)
  assert want.sum() == 12
  assert (want <= availability.byzantine_clients(0, N, 0.3)).all()
  assert (want != availability.byzantine_clients(1, N, 0.2)).any()
  for r in range(3):
    cohort = exp.sample(r)
    real = cohort.ids < N
    assert not real.all()
    ids = cohort.ids[real]
    np.testing.assert_array_equal(cohort.byzantine[real], want[ids])
  assert exp.attack is availability.nan


def test_outcomes_of_a_private_run_do_not_depend_on_its_secret():
  exp = runs.build(FIELDS | PRIVATE | {'dropout': 0.5})
  outcome_of = {}
  for secret in range(1, 9):
    cohort = exp.sample(0, secret)
    assert cohort.outcome is not None
    for i, outcome in zip(cohort.ids, cohort.outcome, strict=True):
      if outcome != NOT_SELECTED:
        assert outcome_of.setdefault(i, outcome) == outcome
  assert {*outcome_of.values()} == {PARTICIPATED, DROPPED_OUT}
  assert len(outcome_of) > N / 2
