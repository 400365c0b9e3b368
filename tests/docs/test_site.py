"""The built site: no warnings, no dead links, every public name."""

from html import parser
import importlib
import inspect
import pathlib
import pkgutil
import subprocess
import sys
import urllib.parse

import fl_sketch
import pytest
from runs import ROOT
from sphinx.util import inventory

pytestmark = pytest.mark.nightly


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The site, built by the command of `make docs`; warnings are errors."""
  folder = tmp_path_factory.mktemp('site')
  flags = ['-W', '--keep-going', '-q', '-b', 'html', '-d', folder / '.doctrees']
  command = [sys.executable, '-m', 'sphinx', *flags, 'docs', folder]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-3000:]
  return folder


class _Page(parser.HTMLParser):
  """Collects the anchors of a page, and what it refers to."""

  def __init__(self, path: pathlib.Path):
    super().__init__()
    self.anchors, self.targets = {'', 'top'}, set()
    self.feed(path.read_text())

  def handle_starttag(self, tag, attrs):
    named = dict(attrs)
    self.anchors.add(named.get('id') or '')
    for name in ('href', 'src'):
      if named.get(name):
        self.targets.add(named[name])


def test_no_internal_link_is_dead(site):
  """Catches a link to a page, an anchor or an image that is not there."""
  pages = {path: _Page(path) for path in site.rglob('*.html')}
  assert len(pages) > 80
  dead = []
  for path, page in pages.items():
    for target in page.targets:
      url = urllib.parse.urlsplit(target)
      if url.scheme or url.netloc:
        continue
      file = (path.parent / urllib.parse.unquote(url.path)).resolve()
      file = path if not url.path else file
      anchor = urllib.parse.unquote(url.fragment)
      is_dead = not file.exists()
      if file in pages and anchor not in pages[file].anchors:
        is_dead = True
      if is_dead:
        dead.append(f'{path.relative_to(site)}: {target}')
  assert not dead


def test_every_public_function_and_class_has_its_entry(site):
  """Catches a module or a decorated function that the API pages leave out."""
  with open(site / 'objects.inv', 'rb') as f:
    entries = inventory.InventoryFile.load(f, '', lambda _, path: path)
  found = {
    name for kind in entries if kind[:3] == 'py:' for name in entries[kind]
  }
  missing = []
  for info in pkgutil.walk_packages(fl_sketch.__path__, 'fl_sketch.'):
    if any(part.startswith('_') for part in info.name.split('.')):
      continue
    for name, value in vars(importlib.import_module(info.name)).items():
      is_code = inspect.isclass(value) or inspect.isroutine(value)
      wrapped = inspect.unwrap(value) if callable(value) else value
      is_code = is_code or inspect.isfunction(wrapped)
      is_own = getattr(value, '__module__', None) == info.name
      is_own = is_own and getattr(value, '__name__', None) == name
      if is_code and is_own and not name.startswith('_'):
        if f'{info.name}.{name}' not in found:
          missing.append(f'{info.name}.{name}')
  assert not missing
