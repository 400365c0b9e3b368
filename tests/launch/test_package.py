"""What pyproject.toml, requirements.txt, CITATION.cff and the wheel hold."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile

from fl_sketch.utils import __version__
from harness import ROOT
import pytest
import yaml

PYPROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())
PROJECT = PYPROJECT['project']
GROUPS = PYPROJECT['dependency-groups']
TOOLS = {
  tool
  for name, group in GROUPS.items()
  for tool in group
  if isinstance(tool, str) and name != 'parity'  # PyTorch, for a few tests
}
CONFIGS = [path.name for path in (ROOT / 'configs').glob('*.py')]


def name_of(requirement):
  return re.match(r'[\w-]+', requirement)[0].lower()


def test_requirements_are_all_extras_and_the_tools_of_every_group():
  """Catches a tool or bound that one file lacks, and an extra outside `all`."""
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  package, *tools = [line for line in lines if not line.startswith('#')]
  assert package == '-e .[all]'
  assert tools == sorted(TOOLS, key=name_of)
  extras = PROJECT['optional-dependencies']
  (everything,) = extras.pop('all')
  # Not for every machine; engines that exclude one another.
  for name in ('cuda', 'flower', 'nvflare'):
    extras.pop(name, None)
  assert everything == f'fl_sketch[{",".join(sorted(extras))}]'


def test_every_package_goes_into_the_wheel():
  """Catches a new package that only a checkout would have."""
  listed = PYPROJECT['tool']['setuptools']['packages']
  folders = [path.parent for path in (ROOT / 'fl_sketch').rglob('__init__.py')]
  found = ['.'.join(folder.relative_to(ROOT).parts) for folder in folders]
  for top in ('benchmarks', 'configs', 'launch', 'papers'):
    folders = {path.parent for path in (ROOT / top).rglob('*.py')}
    found += [
      '.'.join(['fl_sketch', *folder.relative_to(ROOT).parts])
      for folder in folders
    ]
  assert sorted(listed) == sorted(found)


def test_the_citation_is_of_this_version():
  """Catches a release that is cited by the version before it."""
  citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
  assert citation['version'] == __version__
  assert citation['license'] == PROJECT['license'] == 'Apache-2.0'
  assert citation['authors'] == PROJECT['authors']


@pytest.mark.nightly
def test_the_wheel_has_one_package_with_configs_and_programs(wheel):
  """Catches packages `tests` or `configs` in the environment of a user."""
  with zipfile.ZipFile(wheel) as z:
    names = set(z.namelist())
    about = f'fl_sketch-{__version__}.dist-info'
    metadata = email.message_from_bytes(z.read(f'{about}/METADATA'))
  assert {name.split('/')[0] for name in names} == {'fl_sketch', about}
  assert {'fl_sketch/py.typed', f'{about}/licenses/LICENSE'} <= names
  assert {f'fl_sketch/configs/{name}' for name in CONFIGS} <= names
  needed = metadata.get_all('Requires-Dist')
  always = {name_of(line) for line in needed if 'extra ==' not in line}
  assert always == {name_of(line) for line in PROJECT['dependencies']}
  assert always.isdisjoint(map(name_of, TOOLS))


@pytest.mark.nightly
def test_a_program_of_the_wheel_finds_its_configs_anywhere(wheel, tmp_path):
  """Catches a program that needs the checkout, or its folder."""
  with zipfile.ZipFile(wheel) as z:
    z.extractall(tmp_path / 'site')
  program = '-m', 'fl_sketch.launch', 'train', 'quickstart:quick'
  subprocess.run(
    [sys.executable, *program, '--config.rounds=10'],
    check=True,
    cwd=tmp_path,
    env={'PYTHONPATH': str(tmp_path / 'site'), 'JAX_PLATFORMS': 'cpu'},
  )
  assert (tmp_path / 'runs' / 'quickstart-quick' / 'summary.json').exists()
