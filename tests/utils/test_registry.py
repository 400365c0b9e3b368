"""Registries: what they accept, list and refuse."""

import math
from typing import Annotated

from fl_sketch.utils import checks, fields, plugins, registry
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2)
VALUES |= st.floats() | st.lists(st.integers(0, 3), max_size=2)
HINTS = {
  fields.Count | None: lambda x: x is None or (type(x) is int and x >= 1),
  fields.Fraction: lambda x: type(x) in (int, float) and 0 < x < 1,
  Annotated[str, fields.choice('ab')]: lambda x: x in ('a', 'b'),
  tuple[fields.Size, ...]: lambda x: type(x) is list and min([0, *x]) >= 0,
  bool: lambda x: type(x) is bool,
}


@pytest.fixture
def shapes():
  shapes = registry.Registry('shape', context=('seed',))

  @shapes.register
  def box(
    width: fields.Positive, depth=2, name: str | None = None, *, seed=0, rest=()
  ):
    return width, depth, name, seed, rest

  shapes.register(lambda corners: corners, name='star')
  return shapes


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from([*HINTS]), VALUES)
def test_a_value_is_accepted_or_named(hint, value):
  """Catches a bound that is off by one, NaN in range, a bool for an int."""
  said = ''
  try:
    fields.check_option('size', value, hint)
  except ValueError as e:
    said = str(e)
  assert said.startswith('' if HINTS[hint](value) else 'size=')
  assert HINTS[hint](value) == (said == '')


def test_options_are_typed_by_annotations_or_defaults(shapes):
  """Catches flags of the wrong type, or of arguments that are no options."""
  shapes.register(lambda depth='low': depth, name='pit')
  assert shapes.types() == {
    'width': float, 'depth': object, 'name': str, 'rest': tuple,
    'corners': object,
  }  # fmt: skip


def test_the_context_is_given_to_those_who_take_it(shapes):
  """Catches a context that a factory must name, or an option that is lost."""
  assert shapes.make('box', width=1, rest=[2], seed=7) == (1, 2, None, 7, [2])
  assert shapes.make('star', corners=5, seed=7) == 5


def test_a_module_that_is_loaded_again_replaces_its_factories():
  """Catches a notebook cell that can be run only once, and lost factories."""
  shapes = registry.Registry('shape')
  for _ in range(2):

    @shapes.register
    def box():
      return 1

  for factory in (pytest.fixture, lambda kind: kind):
    with pytest.raises(ValueError, match='box'):
      shapes.register(factory, name='box')
  assert shapes.make('box') == 1


def test_a_string_annotation_is_read(shapes):
  """Catches modules with postponed annotations, whose options have no type."""
  names = {'Annotated': Annotated, 'Count': fields.Count}
  exec('def hole(depth: "Count | None" = None): return depth', names)
  shapes.register(names['hole'])
  with pytest.raises(ValueError, match='depth'):
    shapes.make('hole', depth=0)


@pytest.mark.parametrize(('name', 'options', 'named'), [
  ('box', {}, 'width'),
  ('box', {'width': 1.0, 'dept': 3}, 'depth'),
  ('box', {'width': np.float64(-1)}, 'width'),
  ('box', {'width': 1.0, 'depth': 'x'}, 'depth'),
  ('bax', {}, 'box'),
])  # fmt: skip
def test_options_that_do_not_fit_are_named(name, options, named, shapes):
  """Catches a wrong option that reaches the factory, or is ignored."""
  with pytest.raises(ValueError, match=named):
    shapes.make(name, **options)


def test_a_module_that_lacks_another_says_so_itself(tmp_path, monkeypatch):
  """Catches a missing import of a plug-in that is taken for a missing one."""
  (tmp_path / 'plugin_without.py').write_text('import no_such_library\n')
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(ModuleNotFoundError, match='no_such_library'):
    plugins.load('plugin_without')
  with pytest.raises(ValueError, match='no_such_plugin'):
    plugins.load('no_such_plugin')


@pytest.mark.parametrize('text', [
  'srht(60)', 'srht(size=', 'srht(size=f())', 'srht(**{})', 'a.b',
  "srht(kind='dct')", 'srht(size=1, size=2)',
])  # fmt: skip
def test_a_text_that_names_no_part_is_refused(text):
  """Catches a call that is evaluated."""
  with pytest.raises(ValueError, match='NAME'):
    registry.parse_call(text)


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
