"""The PyTorch jobs of docs/examples/torch_jobs, over both engines."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
JOBS = ROOT / 'docs/examples/torch_jobs'


@pytest.mark.nightly
def test_both_jobs_run_with_and_without_compression(tmp_path):
  """Catches a job that an engine refuses, and compression that sends more."""
  for name in ('torch', 'flwr', 'nvflare'):
    pytest.importorskip(name, reason=f'needs {name}')
  draws = np.random.default_rng(0)
  images = {
    f'x_{part}': draws.integers(256, size=(128, 32, 32, 3), dtype=np.uint8)
    for part in ('train', 'test')
  }
  labels = {f'y_{part}': np.arange(128) % 10 for part in ('train', 'test')}
  np.savez(tmp_path / 'cifar10.npz', **images, **labels)
  command = [sys.executable, JOBS / 'compare.py', 'unused', tmp_path]
  programs = pathlib.Path(sys.executable).parent  # of the engines
  path = f'{programs}:{os.environ["PATH"]}'
  env = os.environ | {'PYTHONPATH': str(ROOT), 'PATH': path}
  few = '--rounds=4', '--samples=32', '--seeds=1'
  subprocess.run([*command, *few], env=env, check=True)
  for engine in ('nvflare', 'flower'):
    folders = [tmp_path / f'{engine}-4-1-{i}' for i in range(3)]
    rows = [json.loads((x / 'row.json').read_text()) for x in folders]
    plain, *small = (row['bytes'] for row in rows)
    assert 0 < max(small) < plain
