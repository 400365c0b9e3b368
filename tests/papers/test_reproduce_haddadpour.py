"""Studies of Haddadpour et al. and of Das et al.: claims and what they add."""

from collections.abc import Callable
import dataclasses

from fl_sketch import models
from fl_sketch.data import sources, synthetic
from fl_sketch.models import losses
from fl_sketch.runs import config as config_lib, sweep
import jax
import jax.numpy as jnp
import numpy as np
from papers.common.workspace import Workspace
from papers.das.studies import features, grid, paths as das_paths, races
from papers.haddadpour.studies import figures as haddadpour, runs as runs_lib
import pytest

from tests.papers import test_studies


class Run(test_studies.Run):
  """A run that ends at the accuracy which its world gives, in percent."""

  def curve(self, metric='test_accuracy', x='round'):
    xs, ys = super().curve(metric, x)
    if metric == 'test_accuracy':
      steps = self.row['steps'] * np.arange(1, len(ys) + 1)
      ys = self.row['end'] / 100 * np.minimum(1, steps / 45)
    return xs, ys


@dataclasses.dataclass(frozen=True)
class MadeUp(test_studies.MadeUp):
  """Runs end at the accuracy that `world` gives to a config, in percent."""

  world: Callable[[config_lib.Config], float] = lambda c: 10.0

  def _made_up(self, name, config):
    configs = [point.config for point in sweep.points(config)]
    return [
      Run(run.row | {'end': self.world(c), 'steps': c.local_steps}, run.folder)
      for run, c in zip(super()._made_up(name, config), configs, strict=True)
    ]


def paper(c):
  """As the paper has it."""
  if c.algorithm in ('fedavg', 'sketched_sgd'):
    return 98 if c.algorithm == 'fedavg' else 60 + c.sketch['rows'] / 50
  small, heaprix = c.sketch['rows'] == 20, 'k' in (c.options or {})
  fast = c.client_lr * c.server_lr > 0.05
  if c.algorithm == 'fedsketch_privix' and small and c.local_steps * fast == 5:
    return 40
  unlike = 0.1 * c.local_steps * (c.algorithm == 'fedsketchgate')
  return 96.5 + 1.2 * heaprix - small - unlike + fast / 100


def contrary(c):
  """Nothing of what the paper has; more steps are slower and better."""
  if c.algorithm in ('fedavg', 'sketched_sgd'):
    return 99
  return 60 + 4 * c.local_steps + (c.sketch['rows'] == 20) - 2 * bool(c.options)


def claims(tmp_path, run, world):
  ws = MadeUp(tmp_path, 'cpu', progress=False, world=world)
  return run(ws).claims, ws.configs


@pytest.mark.parametrize(('run', 'count'), [
  (haddadpour.figure_1, 4), (haddadpour.figure_2, 3), (haddadpour.headline, 4),
])  # fmt: skip
def test_claims_hold_in_the_papers_world_and_fail_in_another(
  tmp_path, run, count
):
  """Catches a sign that is turned, and cells that are exchanged."""
  for world, met in ((paper, True), (contrary, False)):
    of_world, _ = claims(tmp_path / world.__name__, run, world)
    assert [c.met for c in of_world] == [met] * count


def test_every_cell_is_tuned_and_its_rate_may_be_carried_over(tmp_path):
  _, played = claims(tmp_path, haddadpour.figure_1, paper)
  folder = 'haddadpour/alike/'
  of = lambda what: {n.split('/')[-1] for n in played if f'/{what}/' in n}
  assert of('tune') >= of('race') - {'fs-privix-20x40-tau5-rate-of-tau1'}
  rate = lambda name: played[f'{folder}race/{name}']['client_lr']
  # In the paper's world more than 0.05 is best at tau = 1 and fails at 5.
  assert rate('fs-privix-20x40-tau1') == 0.1
  assert rate('fs-privix-20x40-tau5') == 0.01
  assert rate('fs-privix-20x40-tau5-rate-of-tau1') == 0.1
  lone = played[f'{folder}race/sketchedsgd-20x40-tau1']
  assert lone['server_lr'] == 0.03
  assert 'client_lr' not in lone


@pytest.mark.parametrize('scale', ['cpu', 'gpu'])
def test_the_matched_table_sends_no_more_than_privix(tmp_path, scale):
  ws = Workspace(tmp_path, scale)
  (rows, cols), (t, k) = runs_lib.matched(ws), runs_lib.tables(ws)[1]
  floats = 2 * rows * cols + cols
  assert floats <= t * k < floats + 2 * rows + 1


LAB = Workspace(None, 'quick', progress=False)  # type: ignore
PROBLEM = synthetic.quadratics(0, population=5)
WIDE = {k: v.astype(float) for k, v in PROBLEM.data.items()}


def test_paths_tell_signal_and_noise():
  config = grid.FIELDS | {
    'population': 5, 'cohort': 5, 'rounds': 3, 'noise_multiplier': 0.5,
  }  # fmt: skip
  values = grid.product({'clip_norm': (9.0, 90.0), 'noise_seed': (0, 1)})
  (paths,) = das_paths.play(config, values)
  assert paths.w.shape == (4, 4, 200)
  curved = WIDE['factor'] @ WIDE['factor'].swapaxes(1, 2)
  for run, some in enumerate(values):
    for k in range(3):
      w = np.repeat(paths.w[run, k][None].astype(float), 5, 0)
      for _ in range(20):
        gradient = np.einsum('nde,ne->nd', curved, w - WIDE['optimum'])
        w = w - 0.001 * gradient
      u = (paths.w[run, k] - w) / 0.001
      scale = some['clip_norm'] / np.linalg.norm(u, axis=1, keepdims=True)
      mean = (u * np.minimum(1, scale)).mean(0)
      moved = (paths.w[run, k] - paths.w[run, k + 1]) / 0.001
      signal, noise = paths.signal[run, k], paths.noise[run, k]
      assert signal == pytest.approx(np.linalg.norm(mean), rel=1e-3)
      assert noise == pytest.approx(np.linalg.norm(moved - mean), rel=1e-2)
      # The norm of 200 normals is within 6 deviations once in 1e9.
      stddev = 0.5 * some['clip_norm'] / 5
      assert noise / stddev == pytest.approx(200**0.5, abs=6 / 2**0.5)
  assert not np.allclose(paths.w[0, 1], paths.w[1, 1])


def test_a_plane_holds_paths_that_lie_in_one():
  rng = np.random.default_rng(0)
  flat = rng.standard_normal((2, 40, 2)).cumsum(1)
  away = flat @ np.linalg.qr(rng.standard_normal((7, 2)))[0].T
  projection = grid.projected(away)
  ends = np.linalg.norm(flat[:, -grid.SMOOTH :].mean(1), axis=-1)
  for distances in ('plane', 'space'):
    np.testing.assert_allclose(projection[distances], ends)


@pytest.mark.long
def test_features_are_what_the_last_layer_is_given():
  c = config_lib.Config(
    model='resnet8', model_options={'width': 8, 'stem_stride': 2}
  )
  images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
  part = {'x': images, 'y': np.zeros(3, np.int32)}
  data = sources.Dataset('cifar10', part, part, 10)
  module = models.make('resnet8', 10, **c.model_options)  # type: ignore
  params = models.init_params(module, jax.random.key(0), (8, 8, 3))
  outputs = features.features(c, params, data)
  x = losses.preprocess(
    jnp.asarray(images), **sources.Pixels().plus(images).scale
  )
  logits = jax.jit(module.apply)({'params': params}, x)
  kernel, bias = (np.asarray(params['Dense_0'][k]) for k in ('kernel', 'bias'))
  for split in ('train', 'test'):
    np.testing.assert_allclose(
      outputs[split] @ kernel + bias, logits, atol=1e-5
    )


def test_noise_of_the_formula():
  fields = races.digits(LAB).fields | {
    'population': 3000, 'cohort': 600, 'rounds': 60,
  }  # fmt: skip
  setting = races.digits(LAB)._replace(fields=fields, accountant=None)
  z = races.by_formula(setting, 5.0)
  assert z == pytest.approx(1.05130, abs=1e-5)
  assert races.worth(setting, z) == pytest.approx(10.18, abs=0.01)
