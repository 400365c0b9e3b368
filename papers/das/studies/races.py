"""Das et al.'s images: the settings, the grid that tunes, the best settings."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fl_sketch import runs
from fl_sketch.runs import config as config_lib, privacy_plan
import numpy as np

from ...common import privacy_bounds as bounds, workspace
from ...common.comparison import Entry
from ...common.workspace import Fields, Workspace
from . import features as features_lib

ALGORITHMS = {'dp_fedavg': 'clip', 'dp_normfedavg': 'normalise'}
CLIPS = (15.625, 31.25, 62.5, 125.0, 250.0, 500.0)
FIXED = (15.625, 125.0)  # C of the claims that do not tune it
EPSILONS = (5.0, 1.5)
LAST = 5  # evaluations, whose mean is what counts
SEEDS = 6  # reported ones, from 1; seed 0 is that of the grid
_SHARDS = {'partition': 'label_shards', 'shards_per_client': 5}
_RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)


class Federation(NamedTuple):
  """A dataset spread over clients."""

  name: str  # of its folder
  fields: Fields  # of the config, without privacy
  clips: tuple[float, ...]  # the grid of C
  rates: tuple[float, ...]  # the grid of eta_0
  rate: float  # of the claims at a fixed C
  # The tight one unless another is named, as where time matters.
  accountant: str | None = None
  epsilons: tuple[float, ...] = EPSILONS  # what noise is meant for


class Noise(NamedTuple):
  """A noise multiplier, and what it is worth."""

  epsilon: float  # what it is meant for
  kind: str  # 'formula' with q = 1, or 'calibrated'
  multiplier: float  # z
  worth: float  # the true epsilon


def fashion(ws: Workspace) -> Federation:
  """Fashion-MNIST in full: raw pixels, 3,000 clients of 20 images."""
  own = {
    'dataset': 'fashion_mnist', 'population': 3000, 'cohort': 600,
    'samples_per_client': 20, **_SHARDS,
  }  # fmt: skip
  rates = ws.pick(None, _RATES[-2:], _RATES)
  return Federation('fashion_mnist', _fields(ws, own), CLIPS, rates, 0.008)


def features(ws: Workspace, dataset: str) -> Federation:
  """CIFAR by features of a network: 4,000 clients of 10 images.

  DataError if the dataset is not there.
  """
  population = features_lib.POPULATION
  own = {
    'dataset': 'store',
    'dataset_options': {'folder': str(features_lib.folder(ws, dataset))},
    'feed': 'device', 'population': population, 'cohort': population // 5,
  }  # fmt: skip
  # Features in [0, 1] are shorter than images, and ask for larger rates; 512
  # of them for less than 64.
  rates = ws.pick(None, (0.064, 0.256, 0.512), (0.016, 0.064, 0.128))
  return Federation(dataset, _fields(ws, own), CLIPS, rates, rates[0])


def digits(ws: Workspace) -> Federation:
  """A small one, which needs no data."""
  own = {
    'dataset': 'digits', 'population': 60, 'cohort': 12,
    'samples_per_client': 25, **_SHARDS,
  }  # fmt: skip
  fields = _fields(ws, own)
  return Federation('digits', fields, FIXED, (0.016,), 0.016, 'rdp', (1.5,))


def _fields(ws, own):
  rounds = ws.pick(12, 60, 200)
  return own | {
    'model': 'linear', 'standardize': False, 'sampling': 'poisson',
    'local_steps': 20, 'batch_size': 0, 'local_work': 'gram',
    'client_lr': 0.032, 'lr_decay': 0.99, 'weight_decay': 1e-4,
    'server_optimizer': 'momentum', 'momentum': 0.8, 'server_lr': 1.0,
    'algorithm': 'fedavg', 'rounds': rounds, 'eval_every': 1,
    'checkpoint_every': rounds,
  }  # fmt: skip


def private(
  setting: Federation, noise: Noise | None = None, **own: Any
) -> Fields:
  """A private config of a setting; the noise is shared by the algorithms."""
  fields = setting.fields | {
    'algorithm': 'dp_fedavg', 'clip_norm': setting.clips[0], 'delta': 1e-5,
    'accountant': setting.accountant, 'noise_seed': 0,
  }  # fmt: skip
  if noise is not None:
    fields['noise_multiplier'] = noise.multiplier
  return fields | own


def noises(setting: Federation) -> list[Noise]:
  """Noise for each epsilon: by the paper's formula (q = 1), the accountant."""
  noises = []
  for epsilon in setting.epsilons:
    z = by_formula(setting, epsilon)
    exact = guarantee(setting, epsilon=epsilon).noise_multiplier
    noises += [
      Noise(epsilon, 'formula', z, worth(setting, z)),
      Noise(epsilon, 'calibrated', exact, epsilon),
    ]
  return noises


def by_formula(setting: Federation, epsilon: float) -> float:
  """The noise multiplier of the paper's equation 5 with q = 1."""
  size = {k: setting.fields[k] for k in ('population', 'cohort', 'rounds')}
  return bounds.das_noise_multiplier(epsilon, 1e-5, **size)


def worth(
  setting: Federation, multiplier: float, accountant: str | None = None
) -> float:
  """The true epsilon of a noise multiplier, at delta 1e-5."""
  own: Fields = {'accountant': accountant or setting.accountant}
  own['noise_multiplier'] = multiplier
  return guarantee(setting, **own).statement.epsilon


def guarantee(setting: Federation, **own: Any) -> privacy_plan.PrivacyGuarantee:
  """The accountant's guarantee for a private config of the setting."""
  fields = private(setting, **own)
  return runs.account(config_lib.Config.from_mapping(fields))


def grid(ws: Workspace, setting: Federation) -> list[workspace.PointRun]:
  """Runs both algorithms over every noise, C and rate, on one seed."""
  every, rounds = noises(setting), setting.fields['rounds']
  fields = private(setting, every[0], eval_every=max(1, rounds // 15))
  fields['sweep'] = {
    'algorithm': tuple(ALGORITHMS),
    'noise_multiplier': tuple(n.multiplier for n in every),
    'clip_norm': setting.clips,
    'client_lr': setting.rates,
  }
  return ws.sweep(f'das/{setting.name}/grid', fields)


def chosen(
  runs: Sequence[workspace.PointRun], noise: Noise, algorithm: str
) -> list[workspace.PointRun]:
  """The runs of a grid under this noise."""
  wanted = {'algorithm': algorithm, 'noise_multiplier': noise.multiplier}
  return [run for run in runs if wanted.items() <= run.values.items()]


def best(
  ws: Workspace,
  setting: Federation,
  runs: Sequence[workspace.PointRun],
  noise: Noise,
  algorithm: str,
) -> Entry:
  """The best of the grid's runs, by its last evaluations, over seeds."""
  run = _best(chosen(runs, noise, algorithm))
  name = f'{ALGORITHMS[algorithm]}-{noise.kind}-{noise.epsilon:g}'
  return _over_seeds(ws, setting, name, private(setting), run)


def fixed(
  ws: Workspace, setting: Federation, grid_runs: Sequence[workspace.PointRun]
) -> dict[tuple[str, float], Entry]:
  """(algorithm, C) -> the formula's noise for the first epsilon."""
  noise, seeds = noises(setting)[0], ws.seeds(cpu=1 + SEEDS)[1:]
  if not seeds:  # of digits, whose grid has them
    runs = [r for a in ALGORITHMS for r in chosen(grid_runs, noise, a)]
  else:
    fields = private(setting, noise, client_lr=setting.rate)
    sweep = {'algorithm': tuple(ALGORITHMS), 'clip_norm': FIXED}
    fields['sweep'] = sweep | {'seed': seeds}
    runs = ws.sweep(f'das/{setting.name}/fixed', fields)
  points: dict[tuple[str, float], list[workspace.PointRun]] = {}
  for run in runs:
    at = run.values['algorithm'], run.values['clip_norm']
    points.setdefault(at, []).append(run)
  return {at: Entry(found, found[0].values) for at, found in points.items()}


def fedavg(ws: Workspace, setting: Federation) -> Entry:
  """Runs FedAvg without privacy at its best client rate, over seeds."""
  fields = setting.fields | {'sweep': {'client_lr': setting.rates}}
  runs = ws.sweep(f'das/{setting.name}/fedavg-grid', fields)
  return _over_seeds(ws, setting, 'fedavg', setting.fields, _best(runs))


def accuracy(entry: Entry) -> np.ndarray:
  """Final accuracy of each seed in percent: mean of the last evaluations."""
  return entry.final(last=LAST, scale=100)


def _best(runs):
  return max(runs, key=lambda r: np.nan_to_num(r.final(last=3)))


def _over_seeds(ws, setting, name, fields, run):
  """The point of a run over seeds; at quick scale the run itself."""
  seeds = ws.seeds(cpu=1 + SEEDS)[1:]
  if not seeds:
    return Entry([run], run.values)
  fields = fields | run.values | {'sweep': {'seed': seeds}}
  return Entry(ws.sweep(f'das/{setting.name}/{name}', fields), run.values)
