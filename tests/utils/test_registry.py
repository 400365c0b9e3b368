"""Registries: what they accept, list and refuse."""

import functools
from typing import Annotated

from fl_sketch.utils import fields, plugins, registry
import numpy as np
import pytest
from refusals import refused


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


def test_options_are_typed_by_annotations_or_defaults(shapes):
  """Catches flags of the wrong type, or of arguments that are no options."""
  assert shapes.types() == {
    'width': float, 'depth': int, 'name': str, 'rest': tuple, 'corners': object,
  }  # fmt: skip
  assert shapes.required('box') == ['width']
  assert shapes.names() == ('box', 'star')


def test_the_context_is_given_to_those_who_take_it(shapes):
  """Catches a context that a factory must name, or an option that is lost."""
  assert shapes.make('box', width=1, rest=[2], seed=7) == (1, 2, None, 7, [2])
  assert shapes.make('star', corners=5, seed=7) == 5


def test_a_type_that_two_factories_read_otherwise_is_open(shapes):
  """Catches a flag that refuses the values of one of them."""
  shapes.register(lambda depth='low': depth, name='pit')
  assert shapes.types()['depth'] is object


def test_a_module_that_is_loaded_again_replaces_its_factories(tmp_path):
  """Catches a notebook cell that can be run only once."""
  shapes = registry.Registry('shape')
  for _ in range(2):

    @shapes.register
    def box():
      return 1

  with pytest.raises(ValueError, match=r"shape 'box' is .* under another name"):
    shapes.register(pytest.fixture, name='box')


def test_a_refused_factory_leaves_the_one_there_was(shapes):
  """Catches options that `make` would take for its own, and lost factories."""
  with pytest.raises(ValueError, match=r"reserved names of options \['kind'\]"):
    shapes.register(lambda kind: kind, name='pit')
  again = functools.partial(shapes.register, shapes.entry('star').factory)
  with pytest.raises(ValueError, match=r"hyper=\['side'\] must be options"):
    again(name='star', hyper=('side',))
  assert shapes.make('star', corners=5) == 5


def test_annotations_of_others_say_nothing():
  """Catches metadata of another library, or tuples of two types, refused."""
  fields.check_option('size', 3, Annotated[int, 'how many'])
  fields.check_option('both', (1, 'b'), tuple[int, str])
  with pytest.raises(ValueError, match='must be of type int or str'):
    fields.check_option('both', (1, 2.0), tuple[int, str])


def test_a_string_annotation_is_read(shapes):
  """Catches modules with postponed annotations, whose options have no type."""
  names = {'Annotated': Annotated, 'Count': fields.Count}
  exec('def hole(depth: "Count | None" = None): return depth', names)
  shapes.register(names['hole'])
  with pytest.raises(ValueError, match='depth=0 must be >= 1'):
    shapes.make('hole', depth=0)


@pytest.mark.parametrize(('options', 'message'), [
  ({}, r"shape 'box' requires options \['width'\]"),
  ({'width': 1.0, 'dept': 3}, r"no options \['dept'\].* Did you mean 'depth'"),
  ({'width': '1'}, "width='1' must be of type float or int."),
  ({'width': np.float64(-1)}, 'width=-1.0 must be > 0 and finite.'),
  ({'width': 1.0, 'depth': 'x'}, "depth='x' must be of type int."),
])  # fmt: skip
def test_options_that_do_not_fit_are_named(options, message, shapes):
  """Catches a wrong option that reaches the factory, or is ignored."""
  with pytest.raises(ValueError, match=message):
    shapes.make('box', **options)
  with pytest.raises(ValueError, match=r"shape='bax' .* Did you mean 'box'"):
    shapes.make('bax')


NO_CALLS = (
  'srht(60)', 'srht(size=', 'srht(size=f())', 'srht(**{})', 'a.b',
  "srht(kind='dct')", 'srht(size=1, size=2)',
)  # fmt: skip
test_texts_that_are_no_call_are_refused = refused(
  registry.parse_call, *((text, 'must be NAME or NAME') for text in NO_CALLS)
)
test_plugins_that_are_not_there_are_refused = refused(
  plugins.load,
  ('no_such.module', "plugin='no_such.module'"),
  ('no_such.py', "plugin='no_such.py' is no file"),
  ('', "plugin='' is no module"),
)


def test_a_module_that_lacks_another_says_so_itself(tmp_path, monkeypatch):
  """Catches a missing import of a plugin that is taken for a missing plugin."""
  (tmp_path / 'plugin_without.py').write_text('import no_such_library\n')
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(ModuleNotFoundError, match='no_such_library'):
    plugins.load('plugin_without')
