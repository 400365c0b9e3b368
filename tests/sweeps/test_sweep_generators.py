"""Sweeps of runs whose noise is drawn by ChaCha20."""

import shutil

from fl_sketch import experiment, sweeps
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.sweeps import program
import pytest

from tests.training.test_private_runs import PRIVATE

FIELDS = PRIVATE | {'rounds': 2}


@pytest.mark.nightly
def test_vmapped_points_draw_the_noise_of_looped_ones(tmp_path):
  """Catches keys of 256 bits that cannot be stacked, or are shared."""
  exp = experiment.build(FIELDS)
  traced = program.Program(exp, mesh_lib.cohort_mesh(2), [exp.config])
  assert traced.points_that_fit(exp) >= 1
  fields = FIELDS | {'sweep': {'client_lr': (0.1, 0.1001)}}

  def play(name, points):
    options = {'points_per_program': points, 'progress': False}
    return sweeps.run(fields, tmp_path / name, **options)

  turns = play('turns', 1)
  shutil.copytree(tmp_path / 'turns' / 'secret', tmp_path / 'both' / 'secret')
  both = play('both', 2)
  for row, other in zip(turns, both, strict=True):
    assert row['test_loss'] == pytest.approx(other['test_loss'], rel=1e-4)
  # Equal rates, but for 0.1 %: other noise.
  assert abs(turns[0]['test_loss'] - turns[1]['test_loss']) > 1e-3
