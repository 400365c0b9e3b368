"""A finished run, for tests of the group `training`."""

import shutil

from fl_sketch.runs import loop
import harness
import pytest


@pytest.fixture(scope='module', autouse=True)
def _unproven(unproven):
  """Rounds are proved in tests/privacy."""


DRAW = loop.draw_run, loop.draw_labels


def draw_by(patch, of_run, of_labels):
  patch.setattr(loop, 'draw_run', of_run)
  patch.setattr(loop, 'draw_labels', of_labels)


@pytest.fixture
def figures(monkeypatch):
  """Lets the runs of a test draw their figures."""
  draw_by(monkeypatch, *DRAW)


@pytest.fixture(scope='module', autouse=True)
def _without_figures():
  """Of a run, figures take the most time."""
  with pytest.MonkeyPatch.context() as patch:
    draw_by(patch, lambda folder: [], lambda *_: None)
    yield


@pytest.fixture(scope='session')
def whole(tmp_path_factory):
  """A run that was never stopped, with figures: its folder and its result."""
  folder = tmp_path_factory.mktemp('whole')
  with pytest.MonkeyPatch.context() as patch:
    draw_by(patch, *DRAW)
    return folder, harness.train(folder)


@pytest.fixture
def copy(whole, tmp_path):
  """A copy of the files of that run, which tests may damage."""
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  return tmp_path
