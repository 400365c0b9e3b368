"""Programs that tests run in their own process."""

import re
import sys

from fl_sketch import runs
from fl_sketch.runs import config, noise_secret, same_run, workdir
from fl_sketch.utils import __version__
import harness
from launch import __main__ as command_line
import pytest

from tests.runs.training.test_private_runs import PRIVATE

COMMANDS = sorted(
  path.stem
  for path in (harness.ROOT / 'launch').glob('*.py')
  if path.stem not in ('__init__', '__main__', 'errors')
)
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
  (['train', 'configs/mnist_safle.py'], "'mnist_safl'"),
  (['train', 'quickstart:quik'], 'quik'),
  (['train', 'quickstart', '--rounds=3'], '--config.rounds'),
  (['train', 'quickstart', '--config.options.b2=0.9'], 'options.b2 does not'),
  (['train', 'quickstart', '--config.dataset=mnist', '--data_dir=/none'],
    'mnist'),
  (['config', 'quickstart', '--config.cohort=51'], 'cohort=51'),
  ([*SITE, '--', 'no-such-command'], 'no-such-command'),
])  # fmt: skip
def test_bad_input_of_a_command_is_one_line(args, named):
  """Catches a page of help, or a traceback, in place of the reason."""
  done = harness.command(*args)
  assert done.returncode == 1
  assert named in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1


def test_a_config_is_printed_as_it_runs_and_its_fields_are_explained():
  """Catches a variant or flag that is not in it, and fields without meaning."""
  done = harness.command('config', 'quickstart:quick', '--config.cohort=7')
  lines = done.stdout.splitlines()
  assert {'rounds = 20', 'cohort = 7', "dataset = 'digits'"} <= {*lines}
  scope = {}
  exec(done.stdout, scope)
  fields = {k: v for k, v in scope.items() if not k.startswith('__')}
  assert config.Config(**fields).sketch == {'kind': 'block_cyclic', 'size': 301}
  shown = harness.command('config', 'quickstart', '--config_help')
  want = r'--config.client_clip=None  float\n      largest norm of a.*; > 0'
  assert re.search(want, shown.stdout)
  for _, meanings in config.sections(config.Config):
    assert all(meanings.values())


def test_lists_load_no_library():
  """Catches a list of names that takes the seconds of importing JAX."""
  harness.python('-c', LIGHT)


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
