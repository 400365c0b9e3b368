"""Fixtures of the tests of operators."""

from fl_sketch.sketches import base
import pytest


def _forget():
  base.sketch_tree.clear_cache()
  base.desketch_leaves.clear_cache()


@pytest.fixture
def set_constant(monkeypatch):
  """Sets constants of modules, which compiled operators would keep."""

  def set_one(module, name, value):
    monkeypatch.setattr(module, name, value)
    _forget()

  yield set_one
  monkeypatch.undo()
  _forget()
