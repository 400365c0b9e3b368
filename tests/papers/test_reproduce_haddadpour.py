"""Claims of Haddadpour et al.'s studies, on runs made up to meet or miss."""

from collections.abc import Callable
import dataclasses

from fl_sketch import sweeps
from fl_sketch.experiment import config as config_lib
import numpy as np
from papers.common.workspace import Workspace
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
    configs = [point.config for point in sweeps.points(config)]
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
