"""Configs are found by name and by path, in every program alike."""

import contextlib
import shutil
import sys
from unittest import mock

from launch import configs, parse_flags
import pytest
import runs
from runs import ROOT

NAMES = [p.stem for p in (ROOT / 'configs').glob('*.py') if p.stem[0] != '_']


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
  monkeypatch.chdir(ROOT)


@contextlib.contextmanager
def parsed(*args):
  """The config that a program gets from its arguments."""
  with mock.patch.object(sys, 'argv', ['program', *args]), runs.new_flags():
    config = configs.define_flag()
    parse_flags(sys.argv)
    yield config.value


def test_all_are_listed():
  """Catches a config that the list and the wheel lack."""
  assert configs.names() == sorted(NAMES)


@pytest.mark.parametrize('name', NAMES)
def test_a_name_a_path_and_a_copy_are_one_config(name, tmp_path):
  """Catches a config that loads in its package only, or only outside it."""
  copy = shutil.copy(ROOT / 'configs' / f'{name}.py', tmp_path / 'own.py')
  variant = 'safl,mlp,iid' if name == 'mnist_comparison' else 'quick'
  one, *others = (
    configs.load(given).get_config(variant).to_dict()
    for given in (name, f'configs/{name}.py', str(copy))
  )
  assert one
  assert others == [one, one]


@pytest.mark.parametrize(
  'args',
  [
    ['quickstart:quick'],
    ['--config=quickstart:quick'],
    ['--config', 'configs/quickstart.py:quick'],
  ],
)
def test_variants_and_fields_are_set_however_it_is_named(args):
  """Catches overrides that are lost, or refused, beside a positional name."""
  with parsed(*args, '--config.server_lr=0.5') as c:
    assert (c.rounds, c.server_lr, c.client_lr) == (20, 0.5, 0.3)
    assert c.is_locked
    assert configs.workdir('sweep_') == 'runs/sweep_quickstart-quick'


def test_a_file_of_the_user_with_functions_of_the_package(tmp_path):
  """Catches a loader that does not register the module: dataclasses fail."""
  own = tmp_path / 'my config.v2.py'
  own.write_text(
    'import dataclasses\n'
    'from . import new\n'
    '@dataclasses.dataclass\n'
    'class Rates:\n'
    "  client: 'float' = 0.5\n"
    'def get_config():\n'
    '  c = new()\n'
    '  c.client_lr = Rates().client\n'
    '  return c\n'
  )
  with parsed(f'--config={own}') as c:
    assert c.client_lr == 0.5
    assert configs.workdir() == 'runs/my-config-v2'


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    (
      'quickstrat',
      "No config 'quickstrat'; did you mean 'quickstart'.*, tanh_attack",
    ),
    ('configs/mnist_safle.py', "safle.py'; did you mean 'mnist_safl'"),
    ('qqq', "No config 'qqq'. There are: cifar10_attack, "),
    ('README.md', "Expected config='README.md' to be a Python file"),
  ],
)
def test_an_unknown_name_is_refused_with_the_nearest(given, message):
  """Catches a misspelt config that only says that a file is missing."""
  with pytest.raises(ValueError, match=message):
    configs.load(given)


def test_a_defect_of_a_file_keeps_its_traceback(tmp_path):
  """Catches a user's TypeError that is shown as a wrong flag."""
  own = tmp_path / 'own.py'
  own.write_text("def get_config():\n  return 1 + 'a'\n")
  with (
    pytest.raises(RuntimeError, match='Cannot load the config') as e,
    parsed(f'--config={own}'),
  ):
    pass
  assert isinstance(e.value.__cause__, TypeError)
