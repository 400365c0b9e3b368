"""Checks of numbers on the host, and searches of integers."""

import math

from fl_sketch.utils import checks, search
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest


def test_at_most_forgives_rounding_and_nothing_else():
  for bound in (3.0, 1e-300, 1e300, 0.0, -3.0, math.inf):
    assert checks.at_most('x', min(bound, 1e300), bound) <= bound
  result = checks.at_most('x', np.float32(0.5), 0.5 * (1 - 5e-13))
  assert (type(result), result) == (float, 0.5)
  for value, bound in (
    (1 + 2e-12, 1), (1e-300, 0), (-2.9, -3), (1, math.nan), (math.nan, 1),
    (math.inf, 1), (-math.inf, 1),
  ):  # fmt: skip
    with pytest.raises(ValueError, match='x='):
      checks.at_most('x', value, bound)
  for bad in (True, '1', np.zeros(1)):
    with pytest.raises(TypeError, match='x must be'):
      checks.at_most('x', bad, 1.0)


@pytest.mark.parametrize('n', [0, 7, 10**12 + 1, 10**15 + 1])
def test_the_ceiling_of_an_integer_is_itself(n):
  """Catches a tolerance that is larger than 1 for large integers."""
  assert checks.ceil(n) == checks.ceil(float(n)) == n


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(1, 9), st.integers(0, 60), st.booleans())
def test_a_search_finds_the_least_integer(low, rises_by, doubling):
  """Catches a predicate that is asked out of its range, or too often."""
  calls, high, want = [], 40, low + rises_by
  rises = lambda n: calls.append(n) or n >= want
  assert search.least(rises, low, high, doubling=doubling) == min(want, high)
  assert all(low <= n < high for n in calls)
  assert len(calls) <= 11
  if doubling:
    assert max(calls) <= 2 * want
