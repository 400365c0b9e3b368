"""Rows reach a callback, TensorBoard and Weights & Biases, files alone."""

import shutil
import socket
import struct
import sys

from fl_sketch import experiment, training
from fl_sketch.experiment import config
from fl_sketch.training import sinks
from fl_sketch.utils import extras
import pytest
import runs

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


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


def scalars(folder):
  """{metric: {round: value}} of TensorBoard, which drops what is purged."""
  from tensorboardX.proto import event_pb2

  found = {}
  for path in sorted(folder.iterdir()):
    data, at = path.read_bytes(), 0
    while at < len(data):
      (size,) = struct.unpack_from('<Q', data, at)
      event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
      at += 16 + size
      if event.session_log.status == event.session_log.START:
        for series in found.values():
          for number in [n for n in series if n >= event.step]:
            del series[number]
      for value in event.summary.value:
        series = found.setdefault(value.tag, {})
        series[event.step] = value.simple_value
  return found


@pytest.mark.nightly
def test_tensorboard_has_every_number_once_after_a_resume(tmp_path):
  """Catches rounds that stand there twice, or are lost with their process."""
  exp = experiment.build(runs.SAFL | {'rounds': 4})
  for lost in ((), ('4',)):
    for step in lost:
      shutil.rmtree(tmp_path / 'checkpoints' / step)
    with sinks.opened(['tensorboard'], tmp_path, exp.config) as on_row:
      training.train(exp, tmp_path, progress=False, on_row=on_row)
  found = scalars(tmp_path / 'tensorboard')
  rows = runs.rows(tmp_path)
  del found['seconds']
  assert found.keys() == {name for row in rows for name in row}
  for name, series in found.items():
    values = {row['round']: row[name] for row in rows if name in row}
    assert series == pytest.approx(values, rel=1e-6)


PROGRAM = """
import sys
from fl_sketch import experiment, training
from fl_sketch.training import sinks
import runs
exp = experiment.build(runs.SMALL)
with sinks.opened(['wandb'], sys.argv[1], exp.config) as on_row:
  training.train(exp, sys.argv[1], progress=False, on_row=on_row)
"""


@pytest.mark.nightly
def test_weights_and_biases_stays_offline_and_below_the_workdir(tmp_path):
  """Catches a run that is sent somewhere, or leaves files in the home."""
  home, folder = tmp_path / 'home', tmp_path / 'run'
  home.mkdir()
  with socket.create_server(('127.0.0.1', 0)) as server:
    url = f'http://127.0.0.1:{server.getsockname()[1]}'
    runs.python('-c', PROGRAM, folder, HOME=str(home), WANDB_BASE_URL=url)
    server.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody has called
      server.accept()
  assert not [path for path in home.rglob('*') if 'wandb' in path.name]
  (log,) = folder.glob('wandb/offline-run-*/run-*.wandb')
  written = log.read_bytes()
  for row in runs.rows(folder):
    for name, value in row.items():
      assert name.encode() in written
      assert str(float(value)).rstrip('0').rstrip('.').encode() in written
