"""Laws of all formulas: on arrays, and outside of their conditions."""

import math

from fl_sketch.utils import checks
import numpy as np
from papers.common import evaluation
import pytest
from statements import ARGUMENTS, FORMULAS

pytestmark = pytest.mark.filterwarnings('ignore:This is NOT differential')
# Too small and too large for a number of any meaning, and no number.
OUTSIDE = -1, 0, 10**6, math.nan
# Of data alone, or text.
OTHERS = {
  'chen.constants.intrinsic_dimension', 'chen.constants.sub_gaussian_scale',
  'chen.corollaries.comparison', 'chen.monitor.auxiliary_step',
  'chen.monitor.descent_slack', 'das.lemmas.curvature',
  'das.lemmas.heterogeneity_gaps', 'das.lemmas.lipschitz',
  'das.lemmas.smoothness', 'das.lemmas.sum_square_bound',
  'das.tradeoffs.lowest_clip_norm', 'haddadpour.compressors.contraction_error',
  'haddadpour.compressors.decoding_gap',
  'haddadpour.compressors.unbiased_constant',
  'haddadpour.lemmas.gradient_variance', 'haddadpour.lemmas.pl_constant',
  'haddadpour.tables.heterogeneous_table',
  'haddadpour.tables.homogeneous_table',
  'privacy.accounting.epsilon.parallel_composition',
  'song.lemmas.averages', 'song.lemmas.heterogeneity',
  'song.lemmas.quadratic_constants',
}  # fmt: skip
UNCONDITIONAL = {'song.leakage.margin', 'song.lemmas.unified_update'}
# Arguments that may be any number.
FREE = {
  'chen.constants.distortion': {'d', 'rounds'},
  'das.lemmas.lipschitz_drift_bound': {'steps'},
  'song.communication.convex_floats': {'strong_convexity'},
  'song.communication.local_gradient_descent_floats': {'strong_convexity'},
  'song.plans.convex_plan': {'strong_convexity'},
}

every = pytest.mark.parametrize('name', ARGUMENTS)


def places(name):
  """(argument, field or None, its number) of all numbers of an example."""
  for argument, value in ARGUMENTS[name].items():
    if hasattr(value, '_fields'):
      for field, number in value._asdict().items():
        if not isinstance(number, str):
          yield argument, field, number
    elif not isinstance(value, str | list):
      yield argument, None, value


def with_number(name, place, number):
  """The example's arguments with another number at one place."""
  arguments = dict(ARGUMENTS[name])
  argument, field, old = place
  if not isinstance(number, np.ndarray) and isinstance(old, float):
    number = float(number)
  if field is not None:
    number = arguments[argument]._replace(**{field: number})
  return arguments | {argument: number}


def leaves(result):
  if isinstance(result, tuple):
    return [leaf for part in result for leaf in leaves(part)]
  return [result]


def fields(name, place):
  """Numbers around that of an example, of its type, in three places."""
  old = place[2]
  return [old, old + 1, old] if isinstance(old, int) else [old, 1.01 * old, old]


def test_every_formula_has_an_example():
  """A statement without one would escape the laws below."""
  assert ARGUMENTS.keys() | OTHERS == FORMULAS.keys()
  assert not ARGUMENTS.keys() & OTHERS


@every
def test_inside_the_conditions_check_changes_nothing(name):
  """Catches another formula, or another rounding, where nothing is checked."""
  formula, arguments = FORMULAS[name], ARGUMENTS[name]
  result = formula(**arguments)
  assert formula(**arguments, check=False) == result
  numbers = [x for x in leaves(result) if not isinstance(x, str)]
  assert np.isfinite(np.float64(numbers)).all()


@every
def test_outside_of_the_conditions_there_is_a_number_if_asked(name):
  """Catches a condition that is raised by hand, and a root of -1."""
  formula, refused = FORMULAS[name], 0
  for place in places(name):
    for number in OUTSIDE:
      if isinstance(place[2], int) and number != number:
        continue  # no integer
      arguments = with_number(name, place, number)
      try:
        formula(**arguments)
      except ValueError:
        refused += 1
      except ArithmeticError:  # a number too large for a power
        pass
      result = formula(**arguments, check=False)
      for leaf in leaves(result):
        assert isinstance(leaf, str) or np.float64(leaf).dtype == float
  assert refused or name in UNCONDITIONAL


@every
def test_a_condition_names_its_argument(name):
  """Catches an argument or a field without an annotation, or with another."""
  if name not in UNCONDITIONAL:
    for place in places(name):
      argument, field, old = place
      word = field or argument
      bad = 0.5 if isinstance(old, int) else math.nan
      if word not in FREE.get(name, ()):
        with pytest.raises((ValueError, TypeError), match=rf'\b{word}\b'):
          FORMULAS[name](**with_number(name, place, bad))


@every
def test_an_array_gives_the_numbers_of_its_elements(name):
  """Catches arrays that are mixed up, and bounds that depend on others'."""
  formula = FORMULAS[name]
  for place in places(name):
    three = fields(name, place)
    one = lambda x, place=place: with_number(name, place, x)
    result = formula(**one(np.array(three)), check=False)
    wanted = [formula(**one(x), check=False) for x in three]
    columns = zip(*map(leaves, wanted), strict=True)
    for got, want in zip(leaves(result), columns, strict=True):
      np.testing.assert_array_equal(got, np.array(want))


def test_arrays_broadcast_and_keep_their_shape():
  """Catches a grid that is zipped, or transposed."""
  name = 'song.convergence.convex'
  formula, arguments = FORMULAS[name], ARGUMENTS[name]
  rounds, rates = np.array([[8], [64]]), np.array([0.01, 0.005, 0.015])
  grid = formula(**arguments | {'rounds': rounds, 'client_lr': rates})
  for i, r in enumerate(rounds.ravel().tolist()):
    for j, lr in enumerate(rates.tolist()):
      assert grid[i, j] == formula(**arguments | {'rounds': r, 'client_lr': lr})
  with pytest.raises(ValueError, match='client_lr=99'):
    formula(**arguments | {'client_lr': np.array([0.01, 99.0])})


def test_what_is_not_a_number_is_refused_whether_checked_or_not():
  """Catches a misspelt form whose number would be drawn."""
  for check in (True, False):
    number = {'check': check, 'form': 'proven'}
    with pytest.raises(ValueError, match="form='proven'"):
      FORMULAS['tails.chebyshev'](32, 0.25, **number)
    with pytest.raises(TypeError, match='size must be an integer'):
      FORMULAS['tails.chebyshev'](32.5, 0.25, check=check)
  assert checks.positive('x', 1) == 1
  with pytest.raises(ValueError, match='x=-1 must be > 0'):  # they are on again
    checks.positive('x', -1)


def test_a_formula_of_a_formula_is_checked_as_the_outer_one():
  """Catches an inner call that checks what the outer one was not to."""
  inner = evaluation.formula(lambda x: checks.positive('x', x))
  outer = evaluation.formula(lambda x: inner(x))
  assert outer(-1.0, check=False) == -1
  with pytest.raises(ValueError, match='x=-1'):
    outer(-1.0)
