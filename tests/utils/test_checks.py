"""Checks of numbers on the host."""

import math

from fl_sketch.utils import checks
import numpy as np
import pytest


def test_at_most_forgives_rounding_and_nothing_else():
  for bound in (3.0, 1e-300, 1e300, 0.0, -3.0, math.inf):
    assert checks.at_most('x', min(bound, 1e300), bound) <= bound
  found = checks.at_most('x', np.float32(0.5), 0.5 * (1 - 5e-13))
  assert (type(found), found) == (float, 0.5)
  for value, bound in ((1 + 2e-12, 1), (1e-300, 0), (-2.9, -3), (1, math.nan)):
    with pytest.raises(ValueError, match=f'x={value} <= {bound}\\.'):
      checks.at_most('x', value, bound)
  for bad in (math.nan, math.inf, -math.inf):
    with pytest.raises(ValueError, match='finite'):
      checks.at_most('x', bad, 1.0)
  for bad in (True, '1', np.zeros(1)):
    with pytest.raises(TypeError, match='x to be a real number'):
      checks.at_most('x', bad, 1.0)
