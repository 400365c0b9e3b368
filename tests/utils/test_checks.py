"""Checks of numbers on the host."""

import math

from fl_sketch.utils import checks
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
