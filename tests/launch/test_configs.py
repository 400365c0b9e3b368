"""Configs are found by name and by path, in every program alike."""

import contextlib
import shutil
import sys
import typing
from unittest import mock

from fl_sketch.runs import config, sweep
from fl_sketch.runs.fields import registries
from fl_sketch.utils import fields as field_rules, files
import harness
from harness import ROOT
from launch import configs, parse_flags
import pytest

FILES = {
  path.stem: path
  for folder in ('configs', 'papers/*/configs')
  for path in ROOT.glob(f'{folder}/[!_]*.py')
}
NAMES = sorted(FILES)


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
  monkeypatch.chdir(ROOT)


@contextlib.contextmanager
def parsed(*args):
  """The config that a program gets from its arguments."""
  argv = mock.patch.object(sys, 'argv', ['program', *args])
  with argv, harness.new_flags():
    config = configs.define_flag()
    parse_flags(sys.argv)
    yield config.value


def test_all_are_listed():
  """Catches a config that the list and the wheel lack."""
  assert configs.names() == NAMES


@pytest.mark.parametrize('name', NAMES)
def test_a_name_a_path_and_a_copy_are_one_config(name, tmp_path):
  """Catches a config that loads in its package only, or only outside it."""
  copy = shutil.copy(FILES[name], tmp_path / 'own.py')
  one, *others = (
    configs.load(given).get_config('quick').to_dict()
    for given in (name, str(FILES[name]), str(copy))
  )
  assert one
  assert others == [one, one]


@pytest.mark.parametrize('args', [
  ['quickstart:quick'],
  ['--config', 'configs/quickstart.py:quick'],
])  # fmt: skip
def test_variants_and_fields_are_set_however_it_is_named(args):
  """Catches overrides that are lost, or refused, beside a positional name."""
  with parsed(*args, '--config.server_lr=0.5') as c:
    assert (c.rounds, c.server_lr, c.client_lr) == (20, 0.5, 0.3)
    assert c.is_locked
    assert configs.workdir('sweep_') == 'runs/sweep_quickstart-quick'


def fields(*args):
  """The fields that a program builds its experiment from."""
  with parsed(*args):
    return configs.fields()


QUICK = 'quickstart:quick'


@pytest.mark.parametrize(('args', 'left_out', 'want'), [
  (['algorithm=fedavg', 'server_optimizer=none', 'final_server_lr=none'],
    'b2, sketch',
    {'b2': None, 'server_optimizer': None, 'final_server_lr': None}),
  (['sketch.kind=count_sketch', 'sketch.rows=5', 'sketch.cols=60'],
    'sketch.size', {'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': 60}}),
  (['dataset_options=none', 'model_options.widths=none', 'keep_best=None',
    'sweep=none'], '',
    {'dataset_options': None, 'keep_best': None, 'model_options': None}),
  (['local_optimizer=adamw(b2=0.9)'], '',
    {'local_optimizer': {'kind': 'adamw', 'b2': 0.9}}),
])  # fmt: skip
def test_parts_are_switched_and_unset(args, left_out, want, capsys):
  """Catches options of the old part that stay, or given ones that go."""
  got = fields(QUICK, *(f'--config.{arg}' for arg in args))
  said = capsys.readouterr().out.strip().partition(': ')[2]
  assert said == left_out
  plain = config.Config.from_mapping
  kept = {k: v for k, v in got.items() if k not in ('model_options', 'sweep')}
  for name, value in want.items():
    if name == 'model_options':
      assert not any(got[name].values())
    else:
      assert getattr(plain(kept), name) == value


# By type, at its edges; a field has those that its rules allow.
EDGES = {
  bool: (True, False),
  int: (0, 1, 2**31),
  float: (0.0, 1e-30, 0.5, 1.0, 1e30),
  str: ('test_loss', '0:5', __file__, 'Some'),
}
NAMED = {
  'algorithm': ('safl', 'fedavg'), 'dataset': ('digits', 'mnist'),
  'model': ('mlp', 'linear'), 'server_optimizer': ('adam', 'sgd'),
}  # fmt: skip
HINTS = typing.get_type_hints(config.Config, include_extras=True)
PLAIN = [x for x in HINTS if x not in (*registries.MAPPINGS, 'plugins')]


def choices(hint):
  rules = field_rules._types_and_rules(hint)[1]
  return [name for rule in rules for name in rule.names]


def allowed(name):
  hint = HINTS[name]
  edges = NAMED.get(name) or EDGES[field_rules.plain_type(hint)]
  for value in (None, *choices(hint), *edges):
    if (name, value) != ('public_metrics', None):  # the flag is refused
      with contextlib.suppress(ValueError):
        field_rules.check_option(name, value, hint)
        yield value


@pytest.mark.parametrize('way', ['flags', 'file', 'sweep'])
def test_what_is_written_is_what_config_json_has(way, tmp_path):
  """Catches a value of a field that is read as another, or a choice 'none'."""
  values = {name: [*allowed(name)] for name in PLAIN}
  for i in range(max(map(len, values.values()))):
    want = {name: some[i % len(some)] for name, some in values.items()}
    args, path = [f'--config.{k}={v}' for k, v in want.items()], QUICK
    if way == 'sweep':
      args = [f'--config.sweep.{k}={(v, "x")!r}' for k, v in want.items()]
    if way == 'file':
      lines = ''.join(f'\n  c.{k} = {v!r}' for k, v in want.items())
      args, path = [], tmp_path / f'own{i}.py'
      path.write_text(f'{FILE}{lines}\n  return c')
    got = fields(str(path), *args)
    if way == 'sweep':
      assert {k: v[0] for k, v in got['sweep'].items() if k in want} == want
      continue
    with mock.patch.object(config.Config, 'check'):  # of combinations
      kept = files.as_json(config.Config.from_mapping(got | {'plugins': ()}))
    assert {name: kept[name] for name in want} == want
  options = [
    parameter.annotation
    for _, parts in registries.REGISTRIES.values()
    for name in parts.names()
    for parameter in parts.options(name).values()
  ]
  words = {
    x.lower() for hint in (*HINTS.values(), *options) for x in choices(hint)
  }
  assert (len(words) > 40, 'none' in words) == (True, False)


FILE = 'from . import new\ndef get_config():\n  c = new()'
NOISY = harness.DP | {'noise_multiplier': None, 'epsilon': 1.0}
PRIVATE = [f'--config.{name}={value}' for name, value in NOISY.items()]


@pytest.mark.parametrize('args', [
  ['--config.public_metrics=none'],
  ["--config.sweep.public_metrics=('none',)"],
  ['--config.epsilon=none', '--config.sweep.epsilon=1.0',
    '--config.public_metrics=none'],
])  # fmt: skip
def test_none_does_not_publish_all_statistics(args):
  """Catches a flag that unsets the field, which publishes everything."""
  with pytest.raises(config.ConfigError, match='public_metrics'):
    fields(QUICK, *PRIVATE, *args)
  assert fields(QUICK, '--config.public_metrics=none')['public_metrics'] is None


OWN = """
import dataclasses
from fl_sketch import algorithms, sketches
from . import new

@dataclasses.dataclass  # finds its module only if it is registered
class Rates:
  client: 'float' = 0.5

@sketches.register
def folded(size: int, shift: float = 0.5):
  return sketches.block_cyclic(size)

@algorithms.register(hyper=('beta',))
def mine(task, hp, *, beta=0.5):
  return algorithms.entry('fedavg').factory(task, hp)

def get_config():
  c = new()
  c.algorithm = 'mine'
  c.options.beta = 0.9
  c.sketch.kind = 'folded'
  c.sketch.shift = 2.0
  c.client_lr = Rates().client
  return c
"""


@pytest.fixture
def own(tmp_path, own_parts):
  """The path of the file, whose parts no other test sees."""
  path = tmp_path / 'own parts.v2.py'
  path.write_text(OWN)
  return str(path)


def test_a_config_file_registers_parts_of_its_own(own):
  """Catches options of one's own that no flag sets and no sweep knows."""
  swept = '--config.sweep.options.beta=(1.0, 2.0)'
  flags = ['--config.options.beta=0.1', swept]
  # A plug-in is loaded before a config whose options it brings.
  early = fields('quickstart', f'--plugins={own}', '--config.options.beta=0.3')
  assert (early['plugins'], early['options']['beta']) == ((own,), 0.3)
  got = fields(own, *flags, '--config.sketch.size=7')
  assert got['plugins'] == (own,)
  assert (got['options']['beta'], got['client_lr']) == (0.1, 0.5)
  assert got['sketch']['shift'] == 2.0
  c = config.Config.from_mapping(got | {'sketch': None})
  assert [p.config.options for p in sweep.points(c)] == [
    {'beta': 1.0}, {'beta': 2.0},
  ]  # fmt: skip
