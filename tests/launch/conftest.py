"""The wheel, for the tests of what a user installs."""

import shutil
import subprocess
import sys

from harness import ROOT
import pytest


@pytest.fixture(scope='session')
def wheel(tmp_path_factory):
  """The wheel, built from a copy: a build leaves files in its folder."""
  source, out = (tmp_path_factory.mktemp(name) for name in ('source', 'out'))
  for path in ('pyproject.toml', 'README.md', 'LICENSE'):
    shutil.copy(ROOT / path, source)
  packaged = 'fl_sketch', 'benchmarks', 'configs', 'launch', 'papers'
  for folder in (*packaged, 'notebooks', 'tests'):
    shutil.copytree(ROOT / folder, source / folder)
  pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-index']
  subprocess.run(
    [*pip, '--no-build-isolation', '-w', out, source],
    check=True,
    capture_output=True,
  )
  (path,) = out.glob('*.whl')
  return path
