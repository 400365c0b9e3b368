"""Points of a sweep are trained on the data and the model of their own."""

import json

from fl_sketch import models, runs
from fl_sketch.runs import custom, sweep
import flax.linen as nn
from harness import SMALL
import jax.numpy as jnp
import numpy as np
import pytest

BOWLS = {
  'population': 4, 'cohort': 4, 'rounds': 2, 'eval_every': 2, 'batch_size': 0,
  'local_steps': 1, 'client_lr': 0.1,
}  # fmt: skip


def run(folder, fields, **options):
  return sweep.run(fields, folder, progress=False, **options)


def check_alone(folder, row, exp):
  """Point 1 has the problem and the numbers of its own run."""
  alone = runs.train(exp, folder / 'alone', progress=False).row
  losses = [name for name in alone if 'loss' in name]
  ours, theirs = ([x[name] for name in losses] for x in (row, alone))
  np.testing.assert_allclose(ours, theirs, rtol=1e-4)
  files = folder / 'points' / '001', folder / 'alone'
  ours, theirs = ((f / 'problem.json').read_text() for f in files)
  assert json.loads(ours) == json.loads(theirs)


def drawn(c):
  """Four clients with samples that the seed draws."""
  rng = np.random.default_rng(c.seed)
  sample = lambda: rng.standard_normal((3, 2)).astype(np.float32)
  clients = [{'x': sample()} for _ in range(4)]
  loss = lambda w, batch: {'loss': jnp.square(batch['x'] @ w - 1)}
  return custom.problem((np.zeros(2), loss), clients, test=clients[0])


@pytest.mark.nightly
def test_a_function_draws_the_data_of_every_seed(tmp_path):
  """Catches points of seed 1 that are trained on the samples of seed 0."""
  fields = BOWLS | {'sweep': {'client_lr': (0.1, 0.2), 'seed': (0, 1)}}
  todo = dict(enumerate(sweep.points(fields)))
  assert [[*g] for g in sweep.groups(todo, drawn)] == [[0, 2], [1, 3]]
  fields = BOWLS | {'sweep': {'seed': (0, 1)}}
  rows = run(tmp_path, fields, problem=drawn)
  alone = runs.build(BOWLS | {'seed': 1}, problem=drawn)
  check_alone(tmp_path, rows[1], alone)


OWN_STEPS = {
  'client_holdout': 0.3, 'personal_steps': 3,
  'sweep': {'client_lr': (0.5, 0.05)},
}  # fmt: skip
ADAPTERS = {
  'lora': {'kind': 'ffa', 'rank': 2, 'targets': ('Dense_0',)},
  'sweep': {'seed': (0, 1)},
}


@pytest.mark.nightly
@pytest.mark.parametrize('fields', [OWN_STEPS, ADAPTERS])
def test_points_have_nothing_of_the_first(fields, tmp_path):
  """Catches own steps of the first rate, and frozen factors of its seed."""
  fields = SMALL | {'standardize': False} | fields
  rows = run(tmp_path, fields, points_per_program=2)
  point = sweep.points(fields)[1]
  check_alone(tmp_path, rows[1], runs.build(point.config))


class Scaled(nn.Module):
  """A linear model whose scale is that of its first parameters as well."""

  num_classes: int
  scale: float = 1.0

  @nn.compact
  def __call__(self, x):
    first = nn.initializers.constant(0.01 * self.scale)
    x = x.reshape(len(x), -1)
    return self.scale * nn.Dense(self.num_classes, kernel_init=first)(x)


@pytest.mark.nightly
@pytest.mark.usefixtures('own_parts')
def test_an_option_of_the_model_draws_parameters_of_its_own(tmp_path):
  """Catches points that start from the model of the first one."""
  models.register(Scaled, name='sweep_scaled', hyper=('scale',))
  fields = BOWLS | {'model': 'sweep_scaled', 'batch_size': 4}
  swept = {'model_options': {'scale': (1.0, 2.0)}}
  points = sweep.points(fields | {'sweep': swept})
  assert len(sweep.groups(dict(enumerate(points)))) == 1
  rows = run(tmp_path, fields | {'sweep': swept}, points_per_program=2)
  check_alone(tmp_path, rows[1], runs.build(points[1].config))
  assert rows[0]['test_loss'] != rows[1]['test_loss']
  # A function may have made the model with the options of its own point.
  assert len(sweep.groups(dict(enumerate(points)), drawn)) == 2
