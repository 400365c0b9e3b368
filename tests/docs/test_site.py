"""The built site: no warnings, such as a dead link, and every public name."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import fl_sketch
from harness import ROOT
import pytest
from sphinx.util import inventory

pytestmark = pytest.mark.nightly


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The site by the command of `make docs`, where a dead link is an error."""
  folder = tmp_path_factory.mktemp('site')
  flags = ['-W', '--keep-going', '-q', '-b', 'html', '-d', folder / '.doctrees']
  command = [sys.executable, '-m', 'sphinx', *flags, 'docs', folder]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-3000:]
  return folder


def test_every_public_function_and_class_has_its_entry(site):
  """Catches a module or a decorated function that the API pages leave out."""
  with open(site / 'objects.inv', 'rb') as f:
    entries = inventory.InventoryFile.load(f, '', lambda _, path: path)
  kinds = [kind for kind in entries if kind.startswith('py:')]
  documented = {name for kind in kinds for name in entries[kind]}
  missing = []
  for info in pkgutil.walk_packages(fl_sketch.__path__, 'fl_sketch.'):
    if any(part.startswith('_') for part in info.name.split('.')):
      continue
    for name, value in vars(importlib.import_module(info.name)).items():
      code = inspect.unwrap(value) if callable(value) else value
      is_code = inspect.isclass(code) or inspect.isroutine(code)
      home = getattr(value, '__module__', ''), getattr(value, '__name__', '')
      is_own = home == (info.name, name) and not name.startswith('_')
      if is_code and is_own and f'{info.name}.{name}' not in documented:
        missing.append(f'{info.name}.{name}')
  assert not missing


def test_names_in_guides_are_links_and_code_has_a_button(site):
  """Catches a name of the API without its link, and prompts that are copied."""
  guide = (site / 'guides' / 'own_loop.html').read_text()
  assert '#fl_sketch.distributed.step.train_step"' in guide
  assert 'copybutton.js' in guide
  assert '$ ' in (site / '_static' / 'copybutton.js').read_text()
