"""Runs behind Figures 1 to 3 of Das et al.: grids, floors, paths."""

from collections.abc import Iterable, Mapping
import itertools
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
DRAWS = 20  # of Figure 3: a problem each, with noise of its own
FIELDS = {
  'dataset': 'quadratics', 'population': 100, 'cohort': 100, 'local_steps': 20,
  'batch_size': 0, 'client_lr': 0.001, 'algorithm': 'dp_fedavg',
  'clip_norm': 50.0, 'delta': 1e-6, 'noise_seed': 0, 'server_lr': 1.0,
}  # fmt: skip
_AXES = 'q', 'start_scale', 'client_lr', 'clip_norm', 'server_lr'
_TOGETHER = 10  # draws of a file, unless a group has a number of its own


class Grid(NamedTuple):
  """Runs over the product of `axes`: algorithm, fields of a config, draw.

  ``server_lr`` is the server's rate over that of the clients.
  """

  axes: dict[str, list[Any]]  # name -> values, in the order of the arrays' axes
  tuning: int  # draws before those that are reported
  every: int  # rounds between points
  curves: np.ndarray  # f64[*axes, points], f(w) - f(w*) or signal over noise

  @property
  def ratio(self) -> np.ndarray:
    """The last point of normalising over that of clipping, [*axes]."""
    return self.curves[1, ..., -1] / self.curves[0, ..., -1]

  def at(self, values: np.ndarray, **wanted: Any) -> np.ndarray:
    """The part of an array, less its algorithm, at these values of axes."""
    axes = list(self.axes.items())[1:]
    at = [v.index(wanted[n]) if n in wanted else slice(None) for n, v in axes]
    return values[tuple(at)]

  def cells(self, values: np.ndarray, **wanted: Any) -> dict[str, np.ndarray]:
    """The reported draws of every cell, by its name.

    Of an array without its algorithm; `wanted` has lists of values.
    """
    axes = {name: wanted.get(name, self.axes[name]) for name in _AXES}
    return {
      named(at): self.at(values, **at)[self.tuning :].round(5)
      for at in product(axes)
    }

  def tuned(self, **wanted: Any) -> tuple[list[Fields], np.ndarray]:
    """Each algorithm at its best of the other axes, by the draws for tuning.

    Where these are, and the ratio of the last points of the reported draws.
    """
    where, last = [], []
    free = {
      k: v for k, v in self.axes.items() if k in _AXES and k not in wanted
    }
    for values in self.curves[..., -1]:
      found = {
        i: self.at(values, **wanted, **at) for i, at in enumerate(product(free))
      }
      best = min(found, key=lambda i: found[i][: self.tuning].mean())
      where.append(product(free)[best])
      last.append(found[best][self.tuning :])
    return where, last[1] / last[0]


def named(at: Mapping[str, Any]) -> str:
  """The name of a cell.

  >>> named({'q': 1.0, 'start_scale': 0.2, 'client_lr': 0.001})
  'q = 1, I2, rate 0.001'
  """
  words = {
    'q': 'q = {:g}', 'client_lr': 'rate {:g}', 'clip_norm': 'C = {:g}',
    'start_scale': '{:.2}', 'server_lr': '{:g} of the server',
  }  # fmt: skip
  shown = {k: STARTS[v] if k == 'start_scale' else v for k, v in at.items()}
  plain = {k: v for k, v in shown.items() if (k, v) != ('server_lr', 1.0)}
  return ', '.join(words[k].format(v) for k, v in plain.items())


def fields(ws: Workspace) -> Fields:
  """Config fields that all runs share: q = 1, start I1, clip norm 50."""
  own = {'noise_multiplier': noise_multiplier(1.0)}
  return FIELDS | own | {'rounds': ws.pick(20, 500)}


def noise_multiplier(constant: float, rounds: int = 500) -> float:
  """Computes the paper's noise multiplier for (5, 1e-6)-DP."""
  size = {'population': 100, 'cohort': 100, 'rounds': rounds}
  return bounds.das_noise_multiplier(5, 1e-6, constant=constant, **size)


def losses(
  ws: Workspace, group: Mapping[str, Any], measure: str = 'excess'
) -> Grid:
  """Plays a registered group of runs, some draws at a time, or finds it."""
  tuning = range(*group.get('tuning_seeds', [0, 0]))
  seeds = [*tuning, *range(*group['seeds'])]
  base = fields(ws)
  every = max(1, base['rounds'] // 50)
  axes = {'algorithm': [*ALGORITHMS]} | {name: group[name] for name in _AXES}
  parts, together = [], group.get('together', _TOGETHER)
  for i in range(0, len(seeds), together):
    some = axes | {'seed': seeds[i : i + together]}
    play = lambda: _measured(base, some, every, measure, ws.progress)  # noqa: B023
    name = f'das/{measure}-{group["key"]}-{some["seed"][0]}'
    parts.append(ws.cached(name, base | {'sweep': some}, play))
  curves = np.concatenate([np.array(part) for part in parts], axis=-2)
  return Grid(axes | {'seed': seeds}, len(tuning), every, curves)


def signals(ws: Workspace, group: Mapping[str, Any]) -> tuple[Grid, np.ndarray]:
  """Signal over noise in windows of rounds.

  And the least ratio of normalising over clipping in a single round, [*axes]
  less the algorithm.
  """
  runs = losses(ws, group, 'signal')
  least = runs.curves[..., -1]
  return runs._replace(curves=runs.curves[..., :-1]), least[1]


def _measured(base, axes, every, measure, progress):
  """The curves of a grid; signals have one point more, see `signals`."""
  values = product({name: axes[name] for name in _AXES})
  for point in values:
    point['noise_multiplier'] = noise_multiplier(point.pop('q'))
  found = []
  for seed in tqdm.tqdm(axes['seed'], measure, disable=not progress):
    problem, of_seed = synthetic.quadratics(seed, base['population']), []
    for algorithm in axes['algorithm']:
      config = base | {'algorithm': algorithm, 'seed': seed}
      played = paths_lib.play(config, values, signals=measure == 'signal')
      of_seed += [
        paths_lib.excess(problem, p.w[:, ::every])
        if measure == 'excess'
        else p.signal / p.noise
        for p in played
      ]
    both = np.concatenate(of_seed).reshape(len(ALGORITHMS), len(values), -1)
    if measure == 'signal':
      least = np.broadcast_to((both[1] / both[0]).min(-1), both.shape[:2])
      windows = both.reshape(*both.shape[:2], -1, every).mean(-1)
      both = np.concatenate([windows, least[..., None]], -1)
    found.append(both)
  sizes = [len(axes[name]) for name in _AXES]
  curves = np.stack(found, axis=-2)
  return curves.reshape(len(ALGORITHMS), *sizes, *curves.shape[-2:]).tolist()


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
