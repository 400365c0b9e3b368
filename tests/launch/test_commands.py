"""Programs that tests run in their own process."""

import re
import sys

from absl import flags
from fl_sketch import runs
from fl_sketch.runs import config, noise_secret, same_run, workdir
from fl_sketch.utils import __version__, progress
import harness
from launch import __main__ as command_line, configs, errors
import pytest

from tests.runs.training.test_private_runs import PRIVATE

COMMANDS = sorted(
  path.stem
  for path in (harness.ROOT / 'launch').glob('*.py')
  if path.stem not in ('__init__', '__main__', 'errors')
)
QUICK = 'quickstart:quick'
SITE = ['site', 'quickstart', '--client=0', '--data=d', '--state=s']
LIGHT = """
import sys
from launch import __main__
for sys.argv in (['fl-sketch'], ['fl-sketch', 'configs']):
  try:
    __main__.main()
  except SystemExit as e:
    assert not e.code, e
assert not {'jax', 'flax', 'numpy'} & set(sys.modules)
"""


def fl_sketch(monkeypatch, *args):
  monkeypatch.setattr(sys, 'argv', ['fl-sketch', *args])
  command_line.main()


def test_every_program_is_a_command(monkeypatch, capsys):
  """Catches a program that the list leaves out, or a helper that is in it."""
  for args in ((), ('--help',)):
    fl_sketch(monkeypatch, *args)
    usage, *lines, _ = capsys.readouterr().out.splitlines()
    assert usage == 'fl-sketch COMMAND [CONFIG] [--flags]'
    named = [line.split(maxsplit=1) for line in lines if line]
    assert [name.replace('-', '_') for name, _ in named] == COMMANDS
    assert all(text.endswith('.') for _, text in named)


def test_a_command_gets_its_words_or_the_nearest_is_named(monkeypatch, capsys):
  """Catches words that do not reach a program, and a traceback of an import."""
  with harness.new_flags(), pytest.raises(SystemExit) as e:
    fl_sketch(monkeypatch, 'bench', 'ruond')
  assert "got ['ruond']" in e.value.code
  with pytest.raises(SystemExit, match="Did you mean 'train'"):
    fl_sketch(monkeypatch, 'trian', 'quickstart')
  fl_sketch(monkeypatch, '--version')
  assert capsys.readouterr().out == f'fl_sketch {__version__}\n'


@pytest.mark.parametrize(('args', 'named'), [
  (['train', 'quickstart', 'digits_lora'], 'digits_lora'),
  (['train', 'configs/mnist_safle.py'], "not exist. Did you mean 'mnist_safl'"),
  (['train', 'mnist_attack'], '`fl-sketch attack`'),
  (['attack', 'quickstart'], '`fl-sketch train`'),
  (['train', 'README.md'], 'no .py file'),
  (['train', QUICK, '--config.options.b2=0.3'], "b2. Did you mean 'b2'"),
  (['train', QUICK, '--config.sweep.sketch.sise=3'], "'sweep.sketch.size'"),
  (['train', QUICK, f'--config.batch_size={10**12}'], 'indices take 8e+05 GB'),
  (['train', QUICK, '--config.model_options.widths=(1000000000,)'], '2**31'),
  (['train', 'mnist_safl', '--config.dataset=digits'], '5 x 5'),
  *((args, '/dev/null/x cannot be made') for args in (
    ['train', QUICK, '--workdir=/dev/null/x'],
    ['account', 'quickstart:private', '--workdir=/dev/null/x'],
    ['reproduce', 'S2-Tab1:quick', '--workdir=/dev/null/x'],
    ['import-data', 'femnist', 'x', '--to=/dev/null/x'],
    [*SITE[:-1], '--state=/dev/null/x'],
  )),
  (['train', QUICK, '--init_from=none'], 'no run in it'),
  (['bench', '--rouns'], 'rouns'),
  (['plot'], 'at least one workdir'),
  (['plot', 'tests'], 'no config.json'),
  (['reproduce'], '--list'),
  (['reproduce', 'S1-Fig33'], "'S1-Fig3'"),
  (['train', 'quickstart:quik'], 'quik'),
  (['train', 'quickstart', '--rounds=3'], '--config.rounds'),
  (['train', QUICK, '--config.server_optimizer.ns_steps=3'], 'NAME(OPTION'),
  (['train', 'quickstart', '--config.dataset=mnist', '--data_dir=/none'],
    'mnist'),
  (['train', 'quickstart', '--config.cohort=51'], 'cohort=51'),
  ([*SITE, '--', 'no-such-command'], 'no-such-command'),
])  # fmt: skip
def test_bad_input_of_a_command_is_one_line(args, named):
  """Catches a page of help, or a traceback, in place of the reason."""
  done = harness.command(*args)
  assert done.returncode == 1
  assert named in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize('program', COMMANDS)
def test_help_ends_with_0(program, monkeypatch):
  """Catches status 1 of --help, and help on stderr."""
  # `configs` would disclaim the flags of this process's main module.
  monkeypatch.setattr(flags, 'disclaim_key_flags', lambda: None)
  for flag in '--help', '-h':
    for module in f'launch.{program}', 'benchmarks.__main__':
      monkeypatch.delitem(sys.modules, module, raising=False)
    done = harness.command(program.replace('_', '-'), flag)
    assert (done.returncode, done.stderr) == (0, '')


def test_configs_of_other_commands_are_not_proposed():
  """Catches `train` that proposes a config of `attack` for a misspelt one."""
  for command in 'train', 'attack':
    for name in configs.names():
      with pytest.raises(ValueError, match='No config') as e:
        configs.load(name[:-1], command)
      proposed = [x for x in configs.names() if re.search(rf'\b{x}\b', f'{e}')]
      assert {*proposed} <= {*configs.names(command)}


@pytest.mark.parametrize(('body', 'named'), [
  ('return {}', 'get_config of {} returns no'),
  ('return ConfigDict({"rounds": 3})', 'get_config of {} returns no'),
  ('import nothing_there', "{}, line 4: ModuleNotFoundError: No module named"),
  ('return old()', '{}, line 4: NameError'),
  ('return new(', "SyntaxError: '(' was never closed (own.py, line 4)"),
  ('c = new(); c.rouns = 3; return c', "'rouns'. Did you mean 'rounds'"),
])  # fmt: skip
def test_an_error_in_a_file_of_ones_own_is_a_line_with_its_place(
  body, named, tmp_path
):
  """Catches 50 lines of frames around a slip of the user's."""
  path = tmp_path / 'own.py'
  start = 'from . import new', 'from ml_collections import ConfigDict'
  path.write_text('\n'.join([*start, 'def get_config():', f'  {body}']))
  done = harness.command('train', str(path))
  assert done.returncode == 1
  assert named.format(path) in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1
  path = tmp_path / 'plugin.py'
  path.write_text('import nothing_there')
  done = harness.command('train', QUICK, f'--plugins={path}')
  assert f'{path}, line 1: ModuleNotFoundError' in done.stderr


@pytest.mark.parametrize(('program', 'name', 'flags'), [
  pytest.param('train', QUICK, ['--config.rounds=2'],
    marks=pytest.mark.nightly),
  pytest.param('sweep', QUICK,
    ['--config.rounds=2', '--config.sweep.seed=(0, 1)'],
    marks=pytest.mark.nightly),
  ('reproduce', 'S2-Tab1:quick', []),
])  # fmt: skip
def test_quiet_leaves_the_last_line(
  program, name, flags, tmp_path, monkeypatch
):
  """Catches a bar, a note or a table beside --quiet, and a lost last line."""
  monkeypatch.setattr(progress, 'quiet', False)
  flags = [*flags, f'--workdir={tmp_path}']
  loud, quiet = (
    harness.command(program, name, *flags, *more) for more in ([], ['--quiet'])
  )
  assert loud.stderr
  assert (quiet.returncode, quiet.stderr) == (0, '')
  assert quiet.stdout == loud.stdout.splitlines(keepends=True)[-1]


def test_arrays_that_exceed_the_memory_are_one_line():
  """Catches a traceback of an allocation, and a bug taken for one."""
  full = (
    MemoryError('Unable to allocate 9 GiB\n'),
    RuntimeError('RESOURCE_EXHAUSTED: Out of memory\nallocating'),
  )
  for error in full:
    with pytest.raises(SystemExit, match='; use a small'), errors.refused():
      raise error
  with pytest.raises(RuntimeError, match='a bug'), errors.refused():
    raise RuntimeError('a bug')


def test_the_fields_of_a_config_are_explained():
  """Catches a variant or flag that is not in it, and fields without meaning."""
  flags = 'quickstart:quick', '--config.cohort=7', '--config_help'
  shown = harness.command('train', *flags).stdout
  assert '--config.rounds=20 ' in shown
  assert '--config.cohort=7 ' in shown
  want = r'--config.client_clip=None  float\n      largest norm of a.*; > 0'
  assert re.search(want, shown)
  for _, meanings in config.sections(config.Config):
    assert all(meanings.values())


def test_lists_load_no_library():
  """Catches a list of names that takes the seconds of importing JAX."""
  harness.python('-c', LIGHT)


@pytest.mark.nightly
def test_a_statement_is_printed_and_its_secret_deleted(tmp_path):
  """Catches a statement that is cut off, or a secret that is kept."""
  exp = runs.build(PRIVATE)
  noise_secret.keep(tmp_path, resumed=False)
  begun = workdir.Workdir(tmp_path, exp.config, same_run.problem_of(exp))
  begun.begin(0)
  begun.close()
  printed = lambda *flags: harness.command('privacy', str(tmp_path), *flags)
  whole, where = exp.guarantee.statement.sentence(), f'{tmp_path} --forget_s'
  assert printed().stdout.startswith(f'{whole}\nWhoever reads')
  assert 'Finish it, or set unfinished' in printed('--forget_secret').stderr
  (tmp_path / 'summary.json').write_text('{"privacy": {"sentence": "All."}}')
  assert re.match(f'All.\n.* {where}', printed().stdout)
  done = printed('--forget_secret', '--unfinished').stdout
  assert done.endswith('was deleted: no more rounds are possible.\n')
