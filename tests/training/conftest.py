"""A finished run, for tests of the group `training`."""

import shutil

from fl_sketch import reporting
from fl_sketch.reporting import label_distribution
import pytest
import runs


@pytest.fixture(scope='module', autouse=True)
def _unproven(unproven):
  """Rounds are proved in tests/privacy."""


@pytest.fixture
def figures():
  """Lets the runs of a test draw their figures."""


@pytest.fixture(autouse=True)
def _without_figures(request, monkeypatch):
  """Of a run, figures take the most time."""
  if 'figures' not in request.fixturenames:
    monkeypatch.setattr(reporting, 'draw_run', lambda folder: [])
    monkeypatch.setattr(label_distribution, 'draw', lambda *_: None)


@pytest.fixture(scope='session')
def whole(tmp_path_factory):
  """A run that was never stopped: its folder and its result."""
  folder = tmp_path_factory.mktemp('whole')
  return folder, runs.train(folder)


@pytest.fixture
def copy(whole, tmp_path):
  """A copy of the files of that run, which tests may damage."""
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  return tmp_path
