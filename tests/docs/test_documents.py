"""What the documents show is there and runs: Python, commands and links."""

import doctest
import re
import runpy
import shlex
import sys
from typing import NamedTuple
from unittest import mock
import warnings

from absl import flags
from fl_sketch.data import sources
from fl_sketch.data.natural import importing
from fl_sketch.runs import config, sweep
import harness
from harness import ROOT
import launch
from launch import configs
import numpy as np
from papers import catalog
from papers.song.attacks import settings
import pytest

pytestmark = pytest.mark.usefixtures('own_parts')

DOCS = ROOT / 'docs'
PAGES = [ROOT / 'README.md'] + [
  path
  for path in sorted(DOCS.rglob('*.md'))
  if path.relative_to(DOCS).parts[0] not in ('generated', 'results')
]
# Python and commands that do not run here, and why.
EXCEPTIONS = {
  'docs/guides/bring_your_own.md': 'tests/runs/test_custom.py runs it',
  '--coordinator=': 'needs other processes; tests/launch/test_processes.py',
  '--init_from=': 'needs another run; tests/runs/training/test_extending.py',
}
HERE = 'digits', 'quadratics', 'simulated', 'gaussian'  # data without a file
CONFIGURED = 'account', 'attack', 'sweep', 'train'
STARTS = 'fl-sketch ', 'python -m launch ', 'make '


class Command(NamedTuple):
  """A line of a page: a program of launch/ (or of make), its arguments."""

  text: str
  program: str
  arguments: list[str]

  @property
  def is_excepted(self):
    return any(part in self.text for part in EXCEPTIONS)


def name_of(path):
  return str(path.relative_to(ROOT))


def blocks(path, *languages):
  found = re.findall(
    r'^```(\S*)[^\n]*\n(.*?)^```', path.read_text(), re.M | re.S
  )
  return [body for language, body in found if language in languages]


def commands(path):
  """The commands of a page; optional parts and comments are left out."""
  for body in blocks(path, '', 'bash', 'sh', 'console'):
    for line in re.sub(r'\\\n\s*', ' ', body).splitlines():
      text = re.sub(r'\[[^\]]*\]', '', line.removeprefix('$ '))
      if text.startswith(STARTS):
        yield parsed(text)


def parsed(text):
  words = shlex.split(text, comments=True)
  start = 4 if words[0] == 'python' else 2
  program = words[start - 1].replace('-', '_')
  return Command(text, program, words[start:])


SHOWN = [(name_of(path), c) for path in PAGES for c in commands(path)]
each_command = pytest.mark.parametrize(
  'command', [c for _, c in SHOWN], ids=[f'{p}: {c.text}' for p, c in SHOWN]
)


def checked_config(command):
  """Parses the flags of a command and checks its config, which it returns."""
  argv = [command.program, *command.arguments]
  with (
    harness.new_flags(),
    warnings.catch_warnings(),
    mock.patch.object(sys, 'argv', argv),  # where fields of a config are read
  ):
    # Of ml_collections, which loads config files so.
    warnings.filterwarnings('ignore', r'the load_module\(\)')
    module = f'launch.{command.program}'
    runpy.run_module(module, run_name=module)
    words = launch.parse_flags(argv)[1:]
    if command.program not in CONFIGURED:
      return words
    assert not words, words
    if command.program == 'attack':
      fields = flags.FLAGS['config'].value.to_dict()
      return settings.AttackConfig.from_mapping(fields)
    fields = configs.fields()
  if command.program == 'sweep':
    assert len(sweep.points(fields)) > 1
  return config.Config.from_mapping(fields | {'sweep': None})


def test_the_first_commands_of_the_language_guide_have_a_text(
  tmp_path, monkeypatch
):
  """Catches a file that is not there, and another number of clients."""
  monkeypatch.chdir(tmp_path)
  page = DOCS / 'guides/language.md'
  exec(blocks(page, 'python')[0], {})
  first, second, *_ = commands(page)
  with pytest.raises(sources.DataError, match='does not exist'):
    importing.import_data('plays', 'nothing', 'store')
  data = importing.import_data(*first.arguments[:2], 'store')
  assert data.partition.population == checked_config(second).population
  counts = np.bincount(data.train['x'].ravel())
  assert counts[data.num_classes - 3] == 0  # [UNK]
  assert counts.sum() > 2e5


@each_command
def test_a_command_has_flags_and_a_config_that_are_valid(command, monkeypatch):
  """Catches a command with a flag, a field or a config that is not there."""
  monkeypatch.chdir(ROOT)
  if command.is_excepted:
    return
  if command.text.startswith('make '):
    makefile = (ROOT / 'Makefile').read_text()
    assert re.search(f'^{command.program}:', makefile, re.M), command.text
    return
  words = checked_config(command)
  if command.program == 'reproduce' and words:
    for word in words:
      assert word.startswith('all') or catalog.find(word.partition(':')[0])


def to_run():
  """Commands that a test can run, once each, in variants of a few rounds."""
  cases = {}
  for _, command in SHOWN:
    if command.is_excepted or command.program not in (*CONFIGURED, 'reproduce'):
      continue
    arguments = [a for a in command.arguments if not a.startswith('--workdir')]
    for i, argument in enumerate(arguments):
      # The configs of examples have no variants, and their commands few rounds.
      if re.match(r'(--config=|[^-])[^:]*(?<!\.py)$', argument):
        arguments[i] += ':quick'
    marks = [pytest.mark.long] if command.program == 'attack' else []
    cases[(command.program, *arguments)] = pytest.param(
      command._replace(arguments=arguments), id=command.text, marks=marks
    )
  return list(cases.values())


@pytest.mark.nightly
@pytest.mark.parametrize('command', to_run())
def test_a_command_runs(command, tmp_path, monkeypatch):
  """Catches a command whose flags are valid but that ends with an error."""
  monkeypatch.chdir(ROOT)
  arguments = [*command.arguments, f'--workdir={tmp_path}']
  if command.program in CONFIGURED:
    full = command._replace(arguments=arguments)
    dataset = checked_config(full).dataset
    if dataset not in HERE:
      pytest.skip(f'{dataset} may be absent; the fast test checks the config.')
  done = harness.command(command.program, *arguments)
  assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.representatives(
  'docs/concepts/keys.md', 'docs/concepts/correlated_noise.md',
  'docs/concepts/integers.md',
)  # fmt: skip
@pytest.mark.parametrize('path', PAGES, ids=name_of)
def test_python_of_a_page_runs(path, tmp_path, monkeypatch):
  """Catches an example that no longer runs, or prints something else."""
  monkeypatch.chdir(tmp_path)
  if name_of(path) in EXCEPTIONS:
    return
  namespace = {'__name__': 'page', '__package__': 'configs'}  # of a file
  runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
  for body in blocks(path, 'python'):
    if 'multi_host.start(' in body:
      continue  # tests/distributed/test_multi_host.py runs it in a process
    if '>>>' not in body:
      exec(body, namespace)
    elif path.name != 'README.md':  # whose doctests pytest collects
      test = doctest.DocTestParser().get_doctest(
        body, namespace, name_of(path), str(path), 0
      )
      runner.run(test, clear_globs=False)
      namespace |= test.globs
  assert runner.summarize().failed == 0


@pytest.mark.parametrize('path', PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(path):
  """Catches a link to a file that was moved; Sphinx sees links to pages."""
  links = re.findall(r'\]\((?!https?:|#)([^)\s#]+)', path.read_text())
  links = [link for link in links if 'generated/' not in link]
  assert all((path.parent / link).exists() for link in links), links
