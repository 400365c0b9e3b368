"""Accuracies of the configs of digits and MNIST. Minutes each."""

import importlib

from fl_sketch import runs
from harness import DATA
import pytest

DENSE = 4 * 61_706
pytestmark = pytest.mark.long


def run(name, workdir, **fields):
  module = importlib.import_module(f'configs.{name}')
  config = module.get_config().to_dict() | fields
  exp = runs.build(config, str(DATA))
  return runs.train(exp, workdir, progress=False).row


def test_the_quickstart_is_near_fedavg_at_a_sixteenth_of_the_bytes(tmp_path):
  dense = run('digits_fedavg', tmp_path / 'fedavg')
  safl = run('quickstart', tmp_path / 'safl')
  assert safl['test_accuracy'] >= dense['test_accuracy'] - 0.02
  assert dense['test_accuracy'] >= 0.95
  assert dense['uplink_bytes'] >= 8 * safl['uplink_bytes']


@pytest.mark.skipif(not DATA.exists(), reason=f'needs mnist in {DATA}')
@pytest.mark.parametrize(('name', 'size', 'accuracy', 'fewer'), [
  ('mnist_fedavg', None, 0.985, 1),
  ('mnist_safl', None, 0.985, 12),
  ('mnist_safl', 617, 0.98, 100),
  ('mnist_fedsketch', None, 0.97, 12),
  ('mnist_iterative_sketching', None, 0.97, 12),
])  # fmt: skip
def test_mnist(name, size, accuracy, fewer, tmp_path):
  sketch = {'sketch': {'kind': 'block_cyclic', 'size': size}} if size else {}
  row = run(name, tmp_path, **sketch)
  assert row['round'] < 400
  assert row['uplink_bytes'] * fewer <= DENSE
  assert row['test_accuracy'] >= accuracy
