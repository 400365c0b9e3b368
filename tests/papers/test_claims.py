"""The accuracies of the quickstart and of its dense rival."""

from fl_sketch import runs
from launch import configs
import pytest

pytestmark = pytest.mark.long


def run(name, workdir):
  exp = runs.build(configs.load(name).get_config().to_dict())
  return runs.train(exp, workdir, progress=False).row


def test_the_quickstart_is_near_fedavg_at_a_sixteenth_of_the_bytes(tmp_path):
  dense = run('digits_fedavg', tmp_path / 'fedavg')
  safl = run('quickstart', tmp_path / 'safl')
  assert safl['test_accuracy'] >= dense['test_accuracy'] - 0.02
  assert dense['test_accuracy'] >= 0.95
  assert dense['uplink_bytes'] >= 8 * safl['uplink_bytes']
