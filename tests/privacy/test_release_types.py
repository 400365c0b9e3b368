"""What a private program releases: refused by list, or counted."""

import inspect

import cases
import clean_programs as clean
from fl_sketch.privacy import noninterference
import pytest
import release_leaks

from tests.privacy.test_noninterference import (
  check as check_round,
  check_line,
  refused,
)


def check(fn, outputs='public'):
  """Checks a function whose arguments are of `release_leaks.ARGS`."""
  kinds, args = zip(
    *(release_leaks.ARGS[name] for name in inspect.signature(fn).parameters),
    strict=True,
  )
  return noninterference.check(
    fn, *args, inputs=kinds, outputs=outputs, name='This'
  )


@pytest.mark.representatives(
  'N2-once-difference', 'N2-once-branch', 'N2-steps-scan',
  'N2-steps-half_index', 'N3-length-while', 'N4-bound-median',
  'N4-multiplier-count', 'N5-rows-centred', 'N5-rows-carried',
  'N2-steps-sum_of_indices', 'N5-again-repeated', 'N6-sum-weighted',
  'N6-sum-twice', 'N6-sum-halves', 'N6-noise-masked',
  'N6-noise-one_number', 'N7-rows-reversed', 'N7-rows-gram',
  'N9-rows-key', 'N9-key-one_bit',
)  # fmt: skip
@pytest.mark.parametrize('name', release_leaks.CALLS)
def test_a_leaking_function_is_refused_with_its_line(name):
  """Catches a rule that types a value as a release, or as of one client."""
  fn, match, outputs = release_leaks.CALLS[name]
  with refused(match) as error:
    check(fn, outputs)
  check_line(error, fn)


@pytest.mark.representatives(
  'sorted', 'halves_joined', 'mapped_in_batches', 'reference',
  'public_matrix', 'outer', 'scanned',
)  # fmt: skip
@pytest.mark.parametrize('name', clean.ROWS)
def test_a_function_of_rows_passes(name):
  """Catches a rule that loses the axis of clients."""
  fn = clean.ROWS[name]
  both = lambda s, key: (fn(s), release_leaks.add(key, fn(s)))
  assert check(both, ('client', 'public')) == 1


@pytest.mark.representatives(
  'folds', 'scan', 'carried_key', 'lane_by_lane', 'released_scale', 'sgd',
)  # fmt: skip
@pytest.mark.parametrize('name', clean.CALLS)
def test_a_clean_function_has_its_releases(name):
  """Catches clean functions refused, and loops that count once."""
  fn, count = clean.CALLS[name]
  key = name in clean.KEY_RESULTS
  assert check(fn, ('public', 'noise') if key else 'public') == count


@pytest.mark.representatives(
  'plain', 'two_means', 'kept_error', 'over_realised_cohort'
)
@pytest.mark.parametrize('name', clean.ROUNDS)
def test_a_clean_round_has_its_releases(name):
  """Catches models, bounds and trusts that the walk refuses."""
  made = clean.ROUNDS[name]()
  cohort = cases.cohorts_of(made.make)(0)
  if made.batches is not None:
    cohort = cohort._replace(batches=made.batches)
  args = made.make, cases.HP, cohort, made.params
  assert check_round(*args, trust=made.trust) == made.releases
