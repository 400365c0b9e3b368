"""The archive is tested by night; the fast tier has two studies of papers."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
SMOKE = ('test_every_study_runs_at_quick_scale',)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Makes all tests of this folder nightly but for those of `SMOKE`."""
  for item in items:
    if item.path.is_relative_to(FOLDER) and not (
      item.name.startswith(SMOKE) or item.path.name == 'test_rows.py'
    ):
      item.add_marker('nightly')
