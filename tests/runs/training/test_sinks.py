"""Rows reach a callback, TensorBoard and Weights & Biases, files alone."""

import socket
import sys

from fl_sketch.runs import config, sinks
from fl_sketch.utils import extras
import harness
import pytest


@pytest.mark.parametrize('name', sinks.NAMES)
def test_a_sink_needs_its_package_and_nothing_else_does(
  name, monkeypatch, tmp_path
):
  """Catches an import that every run would need, or a bare ImportError."""
  for package in ('tensorboardX', 'wandb'):
    monkeypatch.setitem(sys.modules, package, None)
  c = config.Config()
  with sinks.opened([], tmp_path, c) as on_row:
    assert on_row is None
  with pytest.raises(extras.MissingExtraError, match=name):
    sinks.opened([name], tmp_path, c).__enter__()
  with pytest.raises(config.ConfigError, match='log_to'):
    sinks.opened([name, 'tensorbord'], tmp_path, c).__enter__()
  assert not [*tmp_path.iterdir()]


def test_tensorboard_has_every_number_once_after_a_resume(
  tmp_path, monkeypatch
):
  """Catches rounds that stand there twice, or are lost with their process."""
  found = {}

  class Writer:
    """Keeps what is added, without what a later start purges."""

    def __init__(self, path, purge_step):
      for name, number in [*found]:
        if number >= purge_step:
          del found[name, number]

    def add_scalar(self, name, value, number):
      assert (name, number) not in found
      found[name, number] = value

    flush = close = lambda self: None

  monkeypatch.setattr('tensorboardX.SummaryWriter', Writer)
  rows = [{'round': n, 'loss': n / 2, 'epsilon': 'inf'} for n in range(4)]
  for first in 0, 2:
    with sinks.opened(['tensorboard'], tmp_path, config.Config()) as on_row:
      for row in rows[first:]:
        on_row(row)
  assert found == {
    (name, row['round']): float(value)
    for row in rows
    for name, value in row.items()
  }


PROGRAM = """
import sys
from fl_sketch import runs
from fl_sketch.runs import sinks
import harness
exp = runs.build(harness.SMALL)
with sinks.opened(['wandb'], sys.argv[1], exp.config) as on_row:
  runs.train(exp, sys.argv[1], progress=False, on_row=on_row)
"""


@pytest.mark.nightly
def test_weights_and_biases_stays_offline_and_below_the_workdir(tmp_path):
  """Catches a run that is sent somewhere, or leaves files in the home."""
  home, folder = tmp_path / 'home', tmp_path / 'run'
  home.mkdir()
  with socket.create_server(('127.0.0.1', 0)) as server:
    url = f'http://127.0.0.1:{server.getsockname()[1]}'
    harness.python('-c', PROGRAM, folder, HOME=str(home), WANDB_BASE_URL=url)
    server.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody has called
      server.accept()
  assert not [path for path in home.rglob('*') if 'wandb' in path.name]
  (log,) = folder.glob('wandb/offline-run-*/run-*.wandb')
  written = log.read_bytes()
  for row in harness.rows(folder):
    for name, value in row.items():
      assert name.encode() in written
      assert str(float(value)).rstrip('0').rstrip('.').encode() in written
