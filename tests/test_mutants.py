"""The planted bugs of `make mutations` still apply to the code."""

import collections
import pathlib

import mutants
import mutations
import pytest


def test_every_bug_can_be_planted():
  """Catches a change of the code that leaves a planted bug behind."""
  mutations.check(pathlib.Path(__file__).parents[1])


def test_at_most_three_bugs_stand_in_one_file():
  counts = collections.Counter(m.path for m in mutants.MUTANTS)
  assert max(counts.values()) <= 3
  assert len(mutants.MUTANTS) >= 30
  assert len({m.name for m in mutants.MUTANTS}) == len(mutants.MUTANTS)


def test_a_bug_that_no_longer_applies_is_an_error(tmp_path):
  path = tmp_path / 'fl_sketch' / mutants.MUTANTS[0].path
  path.parent.mkdir(parents=True)
  path.write_text('another text')
  with pytest.raises(ValueError, match='no longer applies'):
    mutations.check(tmp_path)
