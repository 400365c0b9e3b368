"""Laws of all formulas: on arrays, and outside of their conditions."""

import math
import re

from fl_sketch.utils import checks
import jax
import numpy as np
from papers.chen.statements.constants import Constants
from papers.common import evaluation
import pytest
from statements import ARGUMENTS, FORMULAS, OTHERS, OWN

pytestmark = pytest.mark.filterwarnings('ignore:This is NOT differential')
# Too small and too large for a number of any meaning, and no number.
OUTSIDE = -1, 0, 10**6, math.nan
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
assert FORMULAS.keys() >= {*OWN, *OTHERS}, 'no example of a formula is stale'


def places(name):
  """(argument, field or None, its number) of all numbers of an example."""
  for argument, value in ARGUMENTS[name].items():
    if hasattr(value, '_fields'):
      for field, number in value._asdict().items():
        if not isinstance(number, str):
          yield argument, field, number
    elif not isinstance(value, str | list):
      yield argument, None, value


def changed(name, **changes):
  """The example's arguments with other values, also of fields of a tuple."""
  arguments = dict(ARGUMENTS[name])
  for word, value in changes.items():
    for argument, record in ARGUMENTS[name].items():
      if word in getattr(record, '_fields', ()):
        arguments[argument] = arguments[argument]._replace(**{word: value})
        break
    else:
      arguments[word] = value
  return arguments


def with_number(name, place, number):
  """The example's arguments with another number at one place."""
  argument, field, old = place
  if not isinstance(number, np.ndarray) and isinstance(old, float):
    number = float(number)
  return changed(name, **{field or argument: number})


@every
def test_inside_the_conditions_check_changes_nothing(name):
  """Catches another formula, or another rounding, where nothing is checked."""
  formula, arguments = FORMULAS[name], ARGUMENTS[name]
  result = formula(**arguments)
  assert formula(**arguments, check=False) == result
  numbers = [x for x in jax.tree.leaves(result) if not isinstance(x, str)]
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
      for leaf in jax.tree.leaves(result):
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
    old = place[2]
    three = [old, old + 1 if isinstance(old, int) else 1.01 * old, old]
    one = lambda x, place=place: with_number(name, place, x)
    result = formula(**one(np.array(three)), check=False)
    wanted = [formula(**one(x), check=False) for x in three]
    columns = zip(*map(jax.tree.leaves, wanted), strict=True)
    for got, want in zip(jax.tree.leaves(result), columns, strict=True):
      np.testing.assert_array_equal(got, np.array(want))


SMALL = {'rounds': 100, 'client_lr': 0.1}
PRINTED = {'form': 'printed'}
LARGE = Constants(2**20, 2**20, 10**4, 1e-5, 0.5, 1.0, 1.0, 2.0)
BOUNDED = PRINTED | {'gradient_squared': 4.0, 'm8': 1.0, 'start_loss': None}
large = lambda **fields: BOUNDED | {'run': LARGE._replace(**fields)}
# A formula, what is changed in its example, what the error says.
THRESHOLDS = [
  ('chen.corollaries.asymptotic', SMALL, 'rounds=100 must be >= 57944.69'),
  ('chen.corollaries.asymptotic', SMALL | PRINTED, 'must be >= 10000.0'),
  ('chen.corollaries.asymptotic', SMALL | {'client_lr': 0.02}, 'must be 0.1.'),
  ('chen.corollaries.near_start', {'size': 50}, 'tail of 2.577'),
  ('chen.corollaries.near_start', {'j3': 0.25}, 'must be <= 2499.9'),
  ('chen.corollaries.near_start', PRINTED, 'size=100000 must be >= 113059'),
  ('chen.corollaries.near_start', PRINTED | {'size': 10**6, 'j3': 0.14},
    'j3=0.14 must be > 0.14142'),
  ('chen.gradients.bounded_gradients', {'server_lr': 100.0},
    'server_lr=100.0 and client_lr=0.001'),
  ('chen.gradients.bounded_gradients', large(server_lr=0.4), 'must be 0.5.'),
  ('chen.gradients.bounded_gradients', large(client_lr=0.01, b1=0.0),
    'eta0=1.0 must be <= 0.13'),
  ('chen.gradients.bounded_gradients', large(client_lr=1e-3), 'eta0=0.1 must'),
  ('chen.gradients.bounded_gradients', large(client_lr=1.0, eps=1e5),
    'eta0=100.0 must be <= 50.0'),
  ('chen.gradients.local_gradient', {'local_steps': 1000},
    'client_lr=0.25 must be <= 0.01581'),
  ('chen.rates.decaying_rate', {'client_lr': 0.01}, 'must be 0.37796'),
  ('das.lemmas.drift_bounds', {'client_lr': 2.1}, 'must be <= 2.0'),
  ('das.lemmas.geometric_sum_bound', {'x': 0.3}, 'x=0.3 must be <= 0.125'),
  ('das.lemmas.lipschitz_drift_bound', {'steps': 3}, 'steps=3.0 must be <= 2'),
  ('das.rates.schedule', {'rounds': 9}, 'rounds=9 must be >= 10.0'),
  ('das.rates.schedule', {'largest_gap': 2.0}, 'clip=4.0 must be >= 5.65'),
  ('das.rates.schedule', {'cohort_variance': 1.5}, 'must be <= 1'),
  ('das.tradeoffs.compare', {'ratio': 3.9}, 'ratio=3.9 must be >= 4'),
  ('das.tradeoffs.compare', {'rho': 0.1, 'local_steps': 6}, 'must be <= 5.0'),
  ('das.tradeoffs.compare', {'rho': 0.1, 'distance': 1e3}, 'must be <= 7.0'),
  ('das.tradeoffs.local_steps_bound', {'local_steps': 5}, 'local_steps=5 must'),
  ('das.tradeoffs.local_steps_bound', {'curvature': 2.0}, '<= smoothness=1.0'),
  ('haddadpour.compressors.heavymix', {'k': 65}, 'must be <= dimension=64'),
  ('haddadpour.compressors.induced', {'delta_1': 0.9}, 'must be >= 1'),
  ('haddadpour.compressors.induced', PRINTED, 'delta_1=4.0 must be <= 1'),
  ('haddadpour.plans.fedsketchgate', {'server_lr': 3.9}, 'must be >= 4'),
  ('haddadpour.plans.fedsketchgate', {'accuracy': 0.025}, 'must be >= 6.32'),
  ('haddadpour.plans.fedsketchgate', {'objective': 'linear'}, 'objective='),
  ('haddadpour.plans.fedsketchgate', {'objective': 'pl'}, 'pl_constant=None'),
  ('haddadpour.plans.fedsketchgate', {'pl_constant': 0.5}, 'pl_constant=0.5'),
  ('haddadpour.rates.pl_bound', {'pl_constant': 3.0}, 'pl_constant=3.0 must'),
  ('privacy_bounds.gaussian_mechanism_sigma', {'epsilon': 1.1}, 'must be <= 1'),
  ('song.leakage.linear_decrease', {'p': 1.0}, 'p=1.0 must be <= 0.5'),
  ('song.leakage.linear_decrease', {'b': 0.01, 'theta1': 2.0, 'theta2': 2.0},
    'step / 2=100.0 must be <= 1'),
  ('song.leakage.pl_decrease', {'smoothness': 1.0}, '2=2.0 must be <= 1.0'),
  ('song.leakage.recovery', {'d': 10.0}, 'xi / 2=20.0 must be <= 4.0'),
  ('song.lemmas.alpha', {'size': 101}, 'size=101 must be <= 100'),
  ('song.privacy.amplification', PRINTED | {'q': 0.6}, 'q=0.6 must'),
  ('song.privacy.amplification', PRINTED | {'epsilon': 1.1}, 'must be <= 1'),
  ('tails.tail', PRINTED | {'family': 'count_sketch', 'size': 1}, 'size=1 '),
]  # fmt: skip
SPIKE, FLAT = [[1.0]], [[1.0], [1.0]]
LINE = lambda w: (w.sum(), np.ones(1))
# Formulas, and data that determine no constant.
DEGENERATE = [
  ('chen.constants.intrinsic_dimension', [[]]),
  ('das.lemmas.heterogeneity_gaps', [[LINE], np.zeros(1)]),
  ('das.lemmas.smoothness', [SPIKE, SPIKE]),
  ('das.lemmas.smoothness', [FLAT, [[1.0], [2.0]]]),
  ('haddadpour.lemmas.gradient_variance', [SPIKE]),
  ('haddadpour.lemmas.pl_constant', [[1.0, 0.0], FLAT]),
  ('haddadpour.lemmas.pl_constant', [[1.0, math.nan], FLAT]),
  ('song.lemmas.quadratic_constants', [-np.eye(2)[None]]),
  ('song.lemmas.quadratic_constants', [np.diag([1.0, -1e-9])[None]]),
  ('song.lemmas.quadratic_constants', [np.full((1, 2, 2), math.nan)]),
]


@pytest.mark.parametrize(('name', 'changes', 'words'), THRESHOLDS)
def test_a_threshold_is_that_of_the_statement(name, changes, words):
  """Catches a condition with another constant, or on another quantity."""
  with pytest.raises(ValueError, match=re.escape(words)):
    FORMULAS[name](**changed(name, **changes))


@pytest.mark.parametrize(('name', 'data'), DEGENERATE)
def test_data_that_determine_no_constant_are_refused(name, data):
  """Catches a division by zero, whose NaN or inf would become a bound."""
  with pytest.raises(ValueError, match=r'must be|no minimum'):
    FORMULAS[name](*data)


def test_arrays_broadcast_and_keep_their_shape():
  """Catches a grid that is zipped, or transposed."""
  name = 'song.convergence.convex'
  formula, arguments = FORMULAS[name], ARGUMENTS[name]
  rounds, rates = np.array([[8], [64]]), np.array([0.01, 0.005, 0.015])
  of = lambda r, lr: formula(**arguments | {'rounds': r, 'client_lr': lr})
  one_by_one = [[of(r, lr) for lr in rates.tolist()] for r in (8, 64)]
  np.testing.assert_array_equal(of(rounds, rates), one_by_one)


def test_a_misspelt_form_is_refused_whether_checked_or_not():
  """Catches a name that is checked only where ranges are."""
  for check in (True, False):
    with pytest.raises(ValueError, match='form'):
      FORMULAS['tails.chebyshev'](32, 0.25, check=check, form='proven')


def test_a_condition_of_an_inner_formula_is_one_of_the_outer():
  """Catches an inner call that is not checked, or raises where NaN is due."""
  inner = evaluation.formula(lambda x: checks.positive('x', x))
  outer = evaluation.formula(lambda x: inner(x))
  assert np.isnan(outer(-1.0, check=False))
  with pytest.raises(ValueError, match='x=-1'):
    outer(-1.0)
