"""Studies at the scale of their stored results, on made-up runs."""

import dataclasses
import types
import zlib

from fl_sketch import runs
from fl_sketch.data import sources
from fl_sketch.models import pretrained
from fl_sketch.runs import sweep
from fl_sketch.runs.config import Config
import numpy as np
from papers import catalog
from papers.chen.curvature import during_training, spectrum, spectrum_report
from papers.chen.studies import tables
from papers.common import registration, results, workspace
from papers.common.workspace import Workspace
from papers.das.studies import features, races
from papers.language import problems
from papers.song.attacks import campaign, settings, victims
import pytest

BYTES = 3200  # of a client in a round
LINKS = 'uplink_bytes', 'downlink_bytes'
TOTALS = 'total_uplink_bytes', 'total_downlink_bytes'
DIMENSION = 100_000
SAME = 20  # characters with which a claim begins, whatever was measured
NODES = np.tile(np.linspace(0.0, 1.0, 60), (2, 1))
SPECTRUM = spectrum.Spectrum(
  NODES, np.full_like(NODES, 1 / 60), np.zeros_like(NODES), DIMENSION
)
MOMENT = dict(printed=1.0, exact=1.0, measured=1.0, low=0.9, high=1.1)
SCORES = 'median_error', 'success', 'mse', 'per_unknown'  # of attacks
SCORES_OF_IMAGES = 'psnr', 'ssim', 'objective'
SPEAKERS = {
  'dataset': 'store', 'dataset_options': {'folder': '-'}, 'population': 141,
}  # fmt: skip
# What a file of the ws holds, by the beginning of its name or its end.
CACHED = {
  'song/table_1': lambda fields: {'ok': True, 'moments': [MOMENT]},
  **dict.fromkeys(
    ('das/excess', 'das/signal'),
    lambda fields: np.random.default_rng(0).random(
      [*map(len, fields['sweep'].values()), 51]
    ),
  ),
  'das/remark': lambda fields: {
    name: {'at': [320.0, 0.04], 'loss': [1.0, 1.0]}
    for name in ('normalise', 'clip', 'clip, largest C')
  },
  'das/floors': lambda fields: [[0.1] * len(fields['values'])] * 2,
  'das/trajectories': lambda fields: [
    value
    | {'seed': seed, 'paths': np.ones((2, 9, 2))}
    | {'plane': [1, 1], 'space': [1, 1]}
    for value in fields['values']
    for seed in fields['seeds']
  ],
  'das/noise': lambda fields: [['1'] * 7],
  '/cost': lambda fields: [0.01, 1.0],
  'language/loss_before_adapting': lambda fields: 3.0,
}


@dataclasses.dataclass(frozen=True)
class Run(workspace.PointRun):
  """A run whose loss falls to about 1, and whose accuracy grows to 0.9."""

  def curve(self, metric='test_accuracy', x='round'):
    rounds = self.row['round']
    share = np.arange(1, rounds + 1) / rounds
    metrics = {'test_accuracy': 0.9 * share, 'uplink_bytes': 0 * share + BYTES}
    xs = rounds * share if x == 'round' else rounds * BYTES * share
    return xs, metrics.get(metric, 2 - share + self.row['more'])


@dataclasses.dataclass(frozen=True)
class MadeUp(Workspace):
  """Checks configs, and trains nothing."""

  runs: dict[str, list[Run]] = dataclasses.field(default_factory=dict)
  registered: bool = False

  def sweep(self, name, config):
    assert self.configs.setdefault(name, config) == config, name
    if name not in self.runs:
      self.runs[name] = self._made_up(name, config)
    return self.runs[name]

  def _made_up(self, name, config):
    swept = config.get('sweep') or {'seed': (0,)}
    row = {'diverged': False, 'more': 1e-13 * zlib.crc32(name.encode())}
    row |= dict.fromkeys(LINKS, BYTES)
    rows = [
      {'values': values, 'round': c.rounds, 'epsilon': c.epsilon or np.inf}
      | dict.fromkeys(TOTALS, BYTES * c.rounds)
      | {'participants': c.cohort, 'seconds': 1.0}
      for values, c in sweep.points({**config, 'sweep': swept})
    ]
    return [Run(row | own, self.folder) for own in rows]

  def train(self, name, config):
    self.configs[name] = dict(config)
    Config.from_mapping(config)
    params = {'w': np.zeros(1, np.float32)}
    return types.SimpleNamespace(state=types.SimpleNamespace(params=params))

  def cached(self, name, fields, compute):
    self.configs[name] = dict(fields)
    at_an_end = lambda part: name.startswith(part) or name.endswith(part)
    made_up = [make for part, make in CACHED.items() if at_an_end(part)]
    if not made_up and self.registered:
      pytest.skip('Its registration has the claims on what it computes.')
    return made_up[0](fields) if made_up else compute()


def built(fields, data_dir=None):
  """An experiment of one sample a client."""
  c, new = Config.from_mapping(fields), types.SimpleNamespace
  sizes = np.ones(c.population, int)
  return new(
    config=c, params={'w': np.zeros(DIMENSION, np.float32)}, labels=0 * sizes,
    partition=new(sizes=sizes, client=lambda i: np.array([i])),
  )  # fmt: skip


def loaded(name, data_dir=None):
  """Ten images of ten classes."""
  images = {'x': np.zeros((10, 28, 28, 1), np.uint8), 'y': np.arange(10)}
  return types.SimpleNamespace(train=images, test=images, num_classes=10)


def guaranteed(setting, **own):
  """A guarantee as the accountant gives it, after seconds."""
  Config.from_mapping(races.private(setting, **own))
  statement = types.SimpleNamespace(epsilon=7.0)
  z = own.get('epsilon', 1.0)
  return types.SimpleNamespace(noise_multiplier=z, statement=statement)


def attacked(c, folder, data_dir):
  every, names = [0.1] * c.examples, SCORES
  if c.dataset != 'gaussian':
    names += SCORES_OF_IMAGES
  scores = {'errors': every} | dict.fromkeys(names, 1.0)
  images = lambda n: dict.fromkeys(('psnrs', 'objectives'), every * n)
  return [
    setting._asdict() | scores | images(setting.batch_size)
    for setting in settings.grid(c)
  ]


def victim(c, data_dir):
  count = c.examples * max(c.batch_sizes)
  images = np.random.default_rng(0).random((count, 4, 4, 1), np.float32)
  return types.SimpleNamespace(x=images)


def watched(fields, folder, *, every, options, **_):
  rounds = range(0, Config.from_mapping(fields).rounds + 1, every)
  return [spectrum_report.row(r, SPECTRUM, options.top) for r in rounds]


def folder_of(ws, dataset):
  """CIFAR-100 is not there, as where the stored results were made."""
  if dataset == 'cifar100':
    raise sources.DataError('absent')
  return ws.folder / dataset


def saved(path, params):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.touch()


@pytest.mark.parametrize('name', catalog.STUDIES)
def test_a_study_states_its_claims_on_runs_of_any_result(
  name, tmp_path, monkeypatch
):
  """Catches a config field or a claim that is gone; quick scale has others."""
  for module, function, made_up in (
    (runs, 'build', built),
    (sources, 'load', loaded),
    (campaign, 'run', attacked),
    (victims, 'load', victim),
    (during_training, 'run', watched),
    (races, 'guarantee', guaranteed),
    (features, 'folder', folder_of),
    (problems, 'plays', lambda ws, part='all': SPEAKERS),
    (pretrained, 'save', saved),
    (tables, '_fewest_bytes', lambda kind: 100.0),
  ):
    monkeypatch.setattr(module, function, made_up)
  registered = bool(registration.read(name))
  ws = MadeUp(tmp_path / 'cpu', 'cpu', progress=False, registered=registered)
  report = catalog.find(name).run(ws)
  assert ws.configs
  if (stored := results.read(results.STORED, name)) is None:
    pytest.skip(f'No result of {name} is stored.')
  beginnings = lambda texts: [text[:SAME] for text in texts]
  stated = beginnings(claim.text for claim in report.claims)
  assert stated == beginnings(claim['text'] for claim in stored['claims'])
