"""FedSKETCHGATE with sampled clients, beside the accuracy of Theorem 3."""

import numpy as np

from ...common import registration, study, workspace
from ...common.workspace import Workspace
from ..statements import compressors, plans
from ..statements.lemmas import Constants

_NOTE = (
  'Ten unlike quadratics in 64 dimensions, curvatures U(0.3, 2), centres '
  'N(0, 1). Some clients, drawn afresh in each round, take part; the others '
  'keep their variates. Rates, rounds and steps are those of Theorem 3, '
  'corrected, for this number of clients and accuracy 0.05, with gradients of '
  'variance 1, which promise f - f* = 0.05 (gap + sigma^2 / (2 mu)). Tables '
  'of 5 rows of 8 cells are read by the median, and for variates by the mean. '
  'Without noise runs have five times the rounds, and excess is over that of '
  'the start. The printed form, with all clients, 5 steps, rates 0.2 and 0.3 '
  'and 300 rounds, reads variates by the median and has the factor 1 / tau.'
)
_HEAD = (
  'active', 'FedSKETCHGATE over the promise', 'FedSKETCHGATE without noise',
  'FedSKETCH without noise, least of all rounds',
)  # fmt: skip
CLIENTS, DIMENSION, TABLE, EPS, CURVATURE = 10, 64, (5, 8), 0.05, (0.3, 2.0)
_OMEGA = compressors.privix_variance(DIMENSION, TABLE[1])
GAINS = {'gate': 1 / (1 + _OMEGA / TABLE[0]), 'none': 0.0, 'printed': 1.0}


def sampled(ws: Workspace) -> study.Report:
  """Measures the excess with every number of active clients."""
  quick = {'seeds': [1, 3], 'active': [1, 2, 10], 'longer': 1}
  r = registration.read('S2-Sampled') | ws.pick(quick, {})
  own = {name: r[name] for name in ('seeds', 'active', 'longer')}
  found = ws.cached('haddadpour/sampled', own, lambda: _measured(**own))
  cells = [
    dict(zip([f'{k} active' for k in own['active']], np.array(x), strict=True))
    for x in found[:-1]
  ]
  promise, quiet, stalls = cells
  part = lambda x, less: {k: v for k, v in x.items() if k != f'{less} active'}
  values = {
    'promise': promise, 'several': part(promise, 1),
    'reached': part(quiet, 1), 'one': quiet['1 active'],
    'stalls': part(stalls, 10), 'printed': np.array(found[-1][-1]),
  }  # fmt: skip
  rows = [
    [at, *(workspace.shown(x[at], digits=6) for x in cells)] for at in promise
  ]
  return study.Report(
    registration.claims(r, values),
    dict(zip(_HEAD[1:], cells, strict=True)),
    [study.Table('Excess by the number of active clients of 10.', _HEAD, rows)],
    notes=[_NOTE],
  )


def _measured(seeds, active, longer):
  """[measure, number of active clients, seed]; the last is of the printed."""
  found = []
  for k in active:
    run = plans.fedsketchgate(
      'pl', omega=_OMEGA, clients=k, smoothness=CURVATURE[1], variance=1.0,
      accuracy=EPS, server_lr=float(CLIENTS), pl_constant=CURVATURE[0],
    )  # fmt: skip
    quiet = run._replace(variance=0.0, rounds=longer * run.rounds)
    fast = Constants(_OMEGA, CLIENTS, CURVATURE[1], 0.0, 5, 300, 0.2, 0.3)
    for seed in range(*seeds):
      start, *noisy = _play(run, seed, 'gate')
      promise = EPS * (start + run.variance / (2 * CURVATURE[0]))
      gate, none = (_play(quiet, seed, way) for way in ('gate', 'none'))
      ends = noisy[-1] / promise, gate[-1] / start, min(none) / start
      last = [np.nan, np.nan]
      if k == CLIENTS:
        last = [sum(_play(fast, seed, w)[-75:]) for w in ('printed', 'none')]
      found.append((*ends, last[0] / last[1]))
  return np.reshape(found, (len(active), -1, 4)).transpose(2, 0, 1).tolist()


def _play(run: Constants, seed: int, way: str) -> list[float]:
  """The excess before each round and at the end; 'none' is FedSKETCH."""
  rng, d = np.random.default_rng([seed, run.clients]), DIMENSION
  h = rng.uniform(*CURVATURE, (CLIENTS, d))
  center = rng.normal(size=(CLIENTS, d))
  best, mean = (h * center).sum(0) / h.sum(0), h.mean(0)
  excess = lambda x: float((mean * (x - best) ** 2).sum() / 2)
  x, c = np.zeros(d), np.zeros((CLIENTS, d))
  path, noise = [excess(x)], (run.variance / d) ** 0.5
  factor = GAINS[way] / run.local_steps
  factor /= 1.0 if way == 'printed' else run.client_lr
  for _ in range(run.rounds):
    some = rng.choice(CLIENTS, run.clients, replace=False)
    y = np.repeat(x[None], run.clients, 0)
    for _ in range(run.local_steps):
      slope = h[some] * (y - center[some]) - c[some]
      y = y - run.client_lr * (slope + noise * rng.normal(size=y.shape))
    sign = rng.choice([-1.0, 1.0], (TABLE[0], d))
    cell = rng.integers(TABLE[1], size=(TABLE[0], d))
    alike = cell[:, None] == cell[:, :, None]
    # By row: S^T S of the update of each client, and of their mean.
    rows = ((x - y) * sign[:, None]) @ alike * sign[:, None]
    x = x - run.server_lr * np.median(rows.mean(1), 0)
    if way == 'printed':
      c[some] -= factor * (np.median(rows.mean(1), 0) - np.median(rows, 0))
    else:
      c[some] -= factor * (rows.mean((0, 1)) - rows.mean(0))
    path.append(excess(x))
  return path
