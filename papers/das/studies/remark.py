"""Remark 1 of Das et al.: both bounds over starts, clients and rounds."""

import functools
from typing import Any

import numpy as np
import tqdm

from ...common import registration, study, workspace
from ...common.workspace import Fields, Workspace
from . import grid, paths as paths_lib

_SETTING = (
  'The quadratics of Figure 1, whose optima may be one point (clients that are '
  'alike). The noise is that of the formula for (5, 1e-6) at the number of '
  'rounds, with q = 1.74, or a tenth of that noise, as for 1,000 clients. '
  'Clipping has every C and every length of a step of the server, normalising '
  'every length, for its C is no more than a unit of length. Both are tuned on '
  'draws of their own.'
)
_WHERE = (
  'Loss after the last round above the minimum, each at its best; in brackets '
  'C and the length of a step, which is C times the rate of the server.'
)


def remark_1(ws: Workspace) -> study.Report:
  """Measures both over starts, similarity and rounds together."""
  registered = registration.read('S1-Rem1')
  if ws.scale == 'quick':
    registered |= {
      'rounds': [20], 'clip_norm': [320.0], 'length': [0.04], 'seeds': [0, 2],
      'tuning_seeds': [2, 3], 'setting': registered['setting'][-1:],
    }  # fmt: skip
  most = max(registered['rounds'])
  every: dict[str, dict] = {row['key']: {} for row in registered['claim']}
  rows, seeds = [], {}
  bar = [(s, k) for s in registered['setting'] for k in registered['rounds']]
  for setting, rounds in tqdm.tqdm(bar, 'remark 1', disable=not ws.progress):
    own = {k: v for k, v in registered.items() if k not in ('setting', 'claim')}
    name = f'{setting["name"]}, {rounds:,} rounds'
    measured = ws.cached(
      f'das/remark-{setting["name"]}-{rounds}',
      own | {'rounds': rounds, 'setting': setting},
      functools.partial(_tuned, own | {'rounds': rounds}, setting),
    )
    seeds[name] = measured
    normal, *clipped = (np.array(m['loss']) for m in measured.values())
    for loss, words in zip(clipped, ('own C', 'large C'), strict=True):
      ratio = (normal / loss).round(5)
      if setting['name'] in ('far', 'alike'):
        every[f'far or alike, {words}'][name] = ratio
      if rounds == most:
        every[f'many rounds, {words}'][name] = ratio
    rows.append(
      [setting['name'], f'{rounds:,}', *map(_shown, seeds[name].values())]
    )
  head = 'start or clients', 'rounds', 'normalise', 'clip', 'clip, largest C'
  return study.Report(
    registration.claims(registered, every),
    seeds,
    [study.Table(_WHERE, head, rows)],
    notes=[_SETTING],
  )


def _shown(measured) -> str:
  clip, length = measured['at']
  loss = workspace.shown(measured['loss'], digits=4)
  return f'{loss} ({clip:g}, {length:g})'


def _tuned(own, setting) -> dict[str, Any]:
  """Each at its best over the draws for tuning: where, and reported losses."""
  lengths, clips = own['length'], own['clip_norm']
  points = [(c, x) for c in clips for x in lengths]
  large = [(clips[-1], x) for x in lengths]
  found = {}
  for algorithm, options in (
    ('dp_normfedavg', {'normalise': large}),
    ('dp_fedavg', {'clip': points, 'clip, largest C': large}),
  ):
    lost = functools.partial(_lost, own, setting, algorithm)
    every = max(options.values(), key=len)
    means = dict(
      zip(every, lost(every, own['tuning_seeds']).mean(0), strict=True)
    )
    best = [min(some, key=means.__getitem__) for some in options.values()]
    losses = lost(best, own['seeds']).T.tolist()
    for name, at, loss in zip(options, best, losses, strict=True):
      found[name] = {'at': at, 'loss': loss}
  return found


def _lost(own, setting, algorithm, points, seeds) -> np.ndarray:
  """The last loss above the minimum of draws, f64[draws, points].

  Points are pairs of C and the length of a step.
  """
  rate, rounds = own['client_lr'], own['rounds']
  base: Fields = grid.FIELDS | {
    'algorithm': algorithm, 'rounds': rounds, 'client_lr': rate,
    'noise_multiplier': grid.noise_multiplier(setting['q'], rounds),
  }  # fmt: skip
  values = [
    {
      'start_scale': setting['start_scale'], 'clip_norm': clip,
      'server_lr': length / (rate * clip),
    }
    for clip, length in points
  ]  # fmt: skip
  losses = []
  for seed in range(*seeds):
    config, spread = base | {'seed': seed}, setting['spread']
    problem = paths_lib.problem_of(seed, base['population'], spread)
    played = paths_lib.play(config, values, signals=False, spread=spread)
    ends = np.concatenate([p.w[:, -1] for p in played])
    losses.append(paths_lib.excess(problem, ends))
  return np.array(losses)
