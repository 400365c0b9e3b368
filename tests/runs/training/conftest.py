"""A finished run, for tests of the group `training`."""

import shutil

from fl_sketch.runs import loop
import harness
import pytest


@pytest.fixture(scope='module', autouse=True)
def _unproven(unproven):
  """Rounds are proved in tests/privacy."""


DRAW = loop.draw_run


@pytest.fixture
def figures(monkeypatch):
  """Lets the runs of a test draw their figures."""
  monkeypatch.setattr(loop, 'draw_run', DRAW)


@pytest.fixture(scope='module', autouse=True)
def _without_figures():
  """Of a run, figures take the most time."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(loop, 'draw_run', lambda folder: [])
    yield


@pytest.fixture(scope='session')
def whole(tmp_path_factory):
  """A run that was never stopped, with figures: its folder and its result."""
  folder = tmp_path_factory.mktemp('whole')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(loop, 'draw_run', DRAW)
    return folder, harness.train(folder)


@pytest.fixture
def copy(whole, tmp_path):
  """A copy of the files of that run, which tests may damage."""
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  return tmp_path
