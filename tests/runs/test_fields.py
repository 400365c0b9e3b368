"""Any value of a field is accepted, or refused by an error that names it."""

import contextlib
import dataclasses
import math
import typing

from fl_sketch import algorithms, data as datasets, runs
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import config
from fl_sketch.runs.fields import method, registries
from fl_sketch.utils import fields
import harness
from hypothesis import given, settings, strategies as st
import pytest

HINTS = typing.get_type_hints(config.Config, include_extras=True)
QUADRATIC = {'dataset': 'quadratics', 'population': 6, 'cohort': 6}
BASES = {}, harness.SMALL, harness.SAFL, QUADRATIC, harness.SMALL | harness.DP
NAMES = {  # to trace larger models takes a second
  'model': ('mlp', 'linear', 'lenet5', 'lstm', 'gpt_nano', 'resnet8'),
  'loss': losses.names(), 'dataset': datasets.REGISTRY.names(),
  'algorithm': algorithms.names(), 'server_optimizer': ('adam', 'momentum'),
  'keep_best': ('test_loss', 'client_loss_mean', 'max test_accuracy'),
  'train_slice': (':50', '5:9'), 'test_slice': (':50', '5:9'),
}  # fmt: skip
OF_TYPE = {
  int: (0, 1, 2, 3, 4, 6, 50), float: (0.0, 1e-3, 0.1, 0.5, 0.9, 1.0, 2, 8.5),
  bool: (True, False), tuple: ((), (8,), (4, 3), ('Dense_0',)),
}  # fmt: skip
BROKEN = (
  None, -1, 0, 1.5, math.nan, math.inf, True, 10**6, 'bogus', '', 'x' * 300,
  '9:5', [1], [None], {}, {1: 2}, {'kind': 3}, {'kind': [3]}, {'size': 'a'},
  'srht(size=', 'eden(bits=9)', ('a', 2), b'x', 3j, {'a': {'b': 1}},
)  # fmt: skip


def test_a_condition_on_a_field_that_is_not_there_names_it():
  """Catches a misspelt condition of a new field: a bare AttributeError."""

  @dataclasses.dataclass(frozen=True)
  class New(config.Config):
    width: int | None = fields.field('of it', partitoin='iid')

  with pytest.raises(TypeError, match=r"width.*'partitoin'.*'partition'"):
    New()


@st.composite
def options(draw, name):
  """Options of any registered part that a field names."""
  _, registry = registries.REGISTRIES[name]
  part, types = draw(st.sampled_from(registry.names())), registry.types()
  known = [*registry.required(part), *registry.options(part)]
  chosen = {*registry.required(part), *draw(st.lists(st.sampled_from(known)))
    } if known else ()  # fmt: skip
  values = {
    k: draw(st.sampled_from(OF_TYPE.get(types.get(k), BROKEN))) for k in chosen
  }
  return values | {'kind': part} if name in registries.CALLS else values


def values_of(name):
  """Values of a field's annotation, and others."""
  hint = HINTS[name]
  rules = fields._types_and_rules(hint)[1]
  choices = [choice for rule in rules for choice in rule.names]
  some = NAMES.get(name) or choices or OF_TYPE.get(fields.plain_type(hint), ())
  values = st.sampled_from((*some, *BROKEN))
  return options(name) | values if name in registries.REGISTRIES else values


def accepted(name, data, base):
  """The config, or None if it is refused in one line with the field's name."""
  written = base | {name: data.draw(values_of(name), name)}
  try:
    return config.Config(**written)
  except config.ConfigError as error:
    message = str(error)
  assert len(message) <= 200
  assert len(message.splitlines()) == 1
  named_by, registry = registries.REGISTRIES.get(name, ('', None))
  words = {name, named_by.partition('.')[0] or name}
  words |= {registry.kind} if registry else set()
  if isinstance(written[name], dict):  # of a part: the option is named
    words |= {str(option) for option in written[name]}
  assert any(word in message for word in words), message
  return None


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.data(), st.sampled_from(sorted(HINTS)), st.sampled_from(BASES))
def test_any_value_is_accepted_or_refused_by_name(data, name, base):
  """Catches a traceback, a page of names, and a field that nobody names."""
  accepted(name, data, base)


@pytest.mark.nightly
@pytest.mark.filterwarnings('ignore')
@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.data(), st.sampled_from(sorted(HINTS)), st.sampled_from(BASES))
def test_any_config_is_built_or_refused(data, name, base):
  """Catches a field of a valid config that ends in a traceback of the build."""
  c = accepted(name, data, base)
  if c is not None:
    # Data that are not on the disk are a refusal, too.
    with contextlib.suppress(config.ConfigError, sources.DataError):
      runs.build(c, draw=False)


@pytest.mark.parametrize('name', sorted(HINTS))
def test_every_field_refuses_what_its_type_excludes(name):
  """Catches a field whose bounds only its flag checks, and NaN that passes."""
  wrong = {int: [2.5, True, '1', -1], float: [math.nan, '0.1', True, -1]}
  wrong |= {str: [3], bool: ['yes']}
  for value in wrong.get(fields.plain_type(HINTS[name]), [3]):
    with pytest.raises(config.ConfigError, match=f'^{name}='):
      config.Config(**{name: value})


def test_an_unknown_field_is_refused_with_the_nearest():
  """Catches a misspelt field that is ignored."""
  for make in config.Config.from_mapping, lambda x: config.Config(**x):
    with pytest.raises(config.ConfigError, match="Did you mean 'cohort'"):
      make({'cohrt': 3})


SIZES = {'sketch': {'size': (20, 30)}, 'client_lr': (0.1, 0.2)}
FIELDS = {
  'algorithm': 'safl', 'sketch': {'kind': 'srht', 'size': 9}, 'sweep': SIZES,
}  # fmt: skip


@pytest.mark.parametrize(('given', 'values', 'left_out'), [
  (['algorithm'], {'algorithm': 'fedavg'}, ['sketch', 'sweep.sketch']),
  (['sketch.kind'], {'sketch': {'kind': 'count_sketch', 'size': 9, 'rows': 2}},
    ['sketch.size', 'sweep.sketch.size']),
  (['sketch'], {'sketch': {'kind': 'count_sketch', 'cols': 5}},
    ['sweep.sketch.size']),
  (['sketch'], {'sketch': {'kind': None}}, ['sweep.sketch']),
  (['sketch'], {'sketch': {'kind': 'gaussian', 'size': 3}}, []),
  # Whole sketches name their kinds, whichever the config names.
  (['sketch.kind'],
    {'sketch': {'kind': 'gaussian'}, 'sweep': {'sketch': ({'kind': 'ams'},)}},
    []),
  (['model'],
    {'sweep': {'model_options': {'widths': ((3,),)}}, 'model': 'linear'},
    ['sweep.model_options.widths']),
  # What the command line sets is refused later instead.
  (['algorithm', 'sweep.sketch.size'], {'algorithm': 'fedavg'}, ['sketch']),
  (['sketch'], {'sketch': {'kind': 'gaussian', 'rows': 3}, 'sweep': None}, []),
])  # fmt: skip
def test_a_sweep_of_what_is_left_out_goes_too(given, values, left_out):
  """Catches points with the options of a sketch that the config dropped."""
  fields, names = config.switched(FIELDS | values, given)
  assert names == left_out
  for name in left_out:
    holder, parts = fields, name.split('.')
    for part in parts[:-1]:
      holder = holder[part]
    assert holder[parts[-1]] is None
  assert FIELDS['sweep'] == SIZES


ADAM = FIELDS | {
  'sweep': None, 'server_optimizer': 'adam', 'b2': 0.99, 'final_server_lr': 0.01
}  # fmt: skip


@pytest.mark.parametrize('name', algorithms.names())
def test_another_algorithm_drops_what_it_does_not_take(name):
  """Catches options of an optimizer that stay when the optimizer has left."""
  fields, _ = config.switched(ADAM | {'algorithm': name}, ['algorithm'])
  named = method.without_effect(name, fields['server_optimizer'])
  assert not {k for k in named if fields.get(k) is not None}
