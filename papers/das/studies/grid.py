"""Runs behind Figures 1 to 3 of Das et al.: a grid, floors, paths."""

from collections.abc import Iterable, Mapping
import itertools
import math
from typing import Any, NamedTuple

from fl_sketch.data import synthetic
import numpy as np
import tqdm

from ...common import privacy_bounds as bounds
from ...common.workspace import Fields, Workspace
from . import paths as paths_lib

ALGORITHMS = {'dp_fedavg': 'clip', 'dp_normfedavg': 'normalise'}
STARTS = {1.0: 'I1: w* + z', 0.2: 'I2: w* + z / 5'}
CLIPS = (40.0, 50.0, 100.0)  # of the figures
SMOOTH = 10  # rounds of a moving average
DRAWS = 20  # of the problem, each with noise of its own, at cpu scale
_NAMED_ON = 20  # draws before the first: cells of claims were named on them
FIELDS = {
  'dataset': 'quadratics', 'population': 100, 'cohort': 100, 'local_steps': 20,
  'batch_size': 0, 'client_lr': 0.001, 'algorithm': 'dp_fedavg',
  'clip_norm': 50.0, 'delta': 1e-6, 'noise_seed': 0, 'server_lr': 1.0,
}  # fmt: skip


class Grid(NamedTuple):
  """Runs over the product of `axes`: algorithm, fields of a config, draw."""

  axes: dict[str, list[Any]]  # name -> values, in the order of the arrays' axes
  # Rounds between the points of `excess`; windows of `snr` are as long.
  every: int
  excess: np.ndarray  # f64[*axes, points], f(w) - f(w*)
  snr: np.ndarray  # f64[*axes, windows], the mean of |mean g| / |noise|

  def at(self, values: np.ndarray, **wanted: Any) -> np.ndarray:
    """The part of an array, less its algorithm, at these values of axes."""
    axes = list(self.axes.items())[1:]
    at = [v.index(wanted[n]) if n in wanted else slice(None) for n, v in axes]
    return values[tuple(at)]

  @property
  def ratio(self) -> np.ndarray:
    """Excess loss of normalising over clipping, f64[q, start, lr, C, draw]."""
    return self.excess[1, ..., -1] / self.excess[0, ..., -1]


def fields(ws: Workspace) -> Fields:
  """Config fields that all runs share: q = 1, start I1, clip norm 50."""
  own = {'noise_multiplier': noise_multiplier(1.0)}
  return FIELDS | own | {'rounds': ws.pick(20, 500)}


def noise_multiplier(constant: float) -> float:
  """Computes the paper's noise multiplier for (5, 1e-6)-DP in 500 rounds.

  >>> round(noise_multiplier(1.0), 4)
  16.6226
  """
  variance = bounds.das_sigma_squared(
    5, 1e-6, clip_norm=1, population=100, rounds=500, constant=constant
  )
  return bounds.das_noise_multiplier_of(
    math.sqrt(variance), cohort=100, clip_norm=1
  )


def grid(ws: Workspace) -> Grid:
  """Plays all runs, or finds them."""
  axes = {
    'algorithm': list(ALGORITHMS),
    'q': ws.pick([1.0, 0.01], [1.0, 2.35, 0.01]),
    'start_scale': list(STARTS),
    'client_lr': ws.pick([0.001], [0.001, 0.002, 0.004]),
    'clip_norm': [20.0, *CLIPS],
    'seed': ws.pick([0, 1], [_NAMED_ON + i for i in range(DRAWS)]),
  }
  base = fields(ws)
  every = max(1, base['rounds'] // 50)
  play = lambda: _measured(base, axes, every, ws.progress)
  kept = ws.cached('das/quadratics', base | {'sweep': axes}, play)
  shape = [len(v) for v in axes.values()]
  array = lambda name: np.array(kept[name]).reshape(*shape, -1)
  return Grid(axes, every, array('excess'), array('snr'))


def _measured(base, axes, every, progress):
  """What `Grid` holds, run by run."""
  *names, _ = axes
  values = product({k: axes[k] for k in names if k != 'algorithm'})
  for point in values:
    point['noise_multiplier'] = noise_multiplier(point.pop('q'))
  measured = {'excess': [], 'snr': []}
  pairs = list(itertools.product(axes['algorithm'], axes['seed']))
  for algorithm, seed in tqdm.tqdm(pairs, 'quadratics', disable=not progress):
    config = base | {'algorithm': algorithm, 'seed': seed}
    problem = synthetic.quadratics(seed, base['population'])
    for paths in paths_lib.play(config, values):
      w, snr = paths.w[:, ::every], paths.signal / paths.noise
      windows = snr.reshape(len(snr), -1, every).mean(-1)
      measured['excess'] += paths_lib.excess(problem, w).tolist()
      measured['snr'] += windows.tolist()
  # From [algorithm, seed, others] to the order of the axes.
  shape = len(axes['algorithm']), len(axes['seed']), len(values), -1
  last = lambda x: np.reshape(x, shape).swapaxes(1, 2).reshape(-1, len(x[0]))
  return {name: last(x).tolist() for name, x in measured.items()}


def product(axes: Mapping[str, Iterable[Any]]) -> list[Fields]:
  """The points of a grid, the last axis the fastest.

  >>> product({'a': [1, 2], 'b': [3]})
  [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
  """
  points = itertools.product(*axes.values())
  return [dict(zip(axes, point, strict=True)) for point in points]


def floors(ws: Workspace) -> list[list[float]]:
  """f(w) - f* without noise at C of `CLIPS`, of clipping and normalising."""
  base = fields(ws) | {'rounds': ws.pick(20, 2000)}
  at = {'client_lr': 0.004, 'start_scale': 0.2, 'noise_multiplier': 0.0}
  values = [at | {'clip_norm': c} for c in CLIPS]
  problem = synthetic.quadratics(0, base['population'])

  def compute():
    ends = []
    for algorithm in ALGORITHMS:
      (paths,) = paths_lib.play(base | {'algorithm': algorithm}, values)
      ends.append(paths_lib.excess(problem, paths.w[:, -1]).tolist())
    return ends

  return ws.cached('das/floors', base | {'values': values}, compute)


def trajectories(ws: Workspace) -> list[Fields]:
  """Projects both algorithms' trajectories (q = 1, rate 0.001) on a plane.

  The plane is that of the two main directions of both, smoothed, and w* its
  origin; the paper does not say how it projects. By start, C and seed there are
  'paths' [algorithm, points, 2] and, from w* to where they end, 'plane' and
  'space' [algorithm].
  """
  base = fields(ws)
  values = product({'start_scale': STARTS, 'clip_norm': CLIPS})
  seeds = ws.seeds(2, DRAWS)

  def compute():
    found = []
    for seed in tqdm.tqdm(seeds, 'trajectories', disable=not ws.progress):
      w_star = synthetic.quadratics(seed, base['population']).w_star
      of_seed = base | {'seed': seed}
      played = [
        [p.w for p in paths_lib.play(of_seed | {'algorithm': a}, values)]
        for a in ALGORITHMS
      ]
      pairs = zip(*map(np.concatenate, played), strict=True)
      for value, pair in zip(values, pairs, strict=True):
        away = projected(np.stack(pair) - w_star)
        found.append(value | {'seed': seed} | away)
    return found

  own = base | {'values': values, 'seeds': seeds}
  return ws.cached('das/trajectories', own, compute)


def projected(away: np.ndarray) -> dict[str, Any]:
  """Trajectories from w*, [algorithm, points, d], as of `trajectories`."""
  windows = np.lib.stride_tricks.sliding_window_view(away, SMOOTH, axis=1)
  smooth = windows.mean(-1)
  rows = smooth.reshape(-1, smooth.shape[-1])
  main = np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:2]
  paths = smooth @ main.T
  length = lambda x: np.linalg.norm(x[:, -1], axis=-1).tolist()
  every = max(1, paths.shape[1] // 100)
  return {
    'paths': paths[:, ::every].tolist(),
    'plane': length(paths),
    'space': length(smooth),
  }
