"""Drift on unlike quadratics: FedSKETCH, its GATE, and GATE as printed."""

import functools

from fl_sketch import algorithms, rounds, sketches
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import figures
from fl_sketch.utils import seeding
import jax
import jax.numpy as jnp
import numpy as np

from ...common import study, verdicts
from ...common.workspace import Fields, Workspace

CLIENTS, DIMENSION, STEPS, TABLE = 10, 64, 5, (5, 8)
PRIVIX, GATE, PRINTED = 'FedSKETCH', 'FedSKETCHGATE', 'FedSKETCHGATE, printed'
WAYS: dict[str, tuple[str, Fields]] = {
  PRIVIX: ('fedsketch_privix', {}),
  GATE: ('fedsketchgate', {}),
  PRINTED: ('fedsketchgate', {'printed': True}),
}
MORE = {'FedSKETCHGATE, HEAPRIX': ('fedsketchgate', {'k': TABLE[1]})}
_NOTE = (
  'Every client has a quadratic of its own: curvatures U(0.3, 2) and centres '
  'N(0, 1) in each of 64 coordinates, five full gradient steps, everybody in '
  'every round, tables of (5, 8), rates 0.2 and 0.3. Excess is f - f* over '
  'that of the start. FedSKETCHGATE reads the tables of its variates by the '
  'mean of the rows, which is linear, and has the factor 1 / (eta tau); the '
  'printed form reads them by the median, under which the variates of all '
  'clients no longer add up to zero, and has 1 / tau.'
)


def drift(ws: Workspace) -> study.Report:
  """Compares how near algorithms get to unlike clients' optimum."""
  ways = WAYS if ws.scale == 'quick' else WAYS | MORE
  excess = {name: _excess(ws, name, *way) for name, way in ways.items()}
  end = {name: x[:, -len(x[0]) // 4 :].mean(1) for name, x in excess.items()}
  least = excess[PRIVIX].min(1)
  claims = [
    verdicts.of_seeds(
      'FedSKETCH stalls: its least excess over all rounds', least, '>=', 1e-4
    ),
    verdicts.of_seeds(
      'FedSKETCHGATE with a linear decoder: excess at the end',
      excess[GATE][:, -1], '<=', 1e-9,
    ),
    verdicts.of_seeds(
      'FedSKETCHGATE as printed over FedSKETCH: excess at the end',
      end[PRINTED] / end[PRIVIX], '>=', 1.0,
    ),
  ]  # fmt: skip
  seeds = {name: x[:, -1].tolist() for name, x in excess.items()}
  table = study.Table(
    f'Excess over the last quarter of the rounds, {len(least)} seeds',
    ('way', 'median', 'least', 'largest'),
    [
      [name, *(f'{of(x):.2g}' for of in (np.median, np.min, np.max))]
      for name, x in end.items()
    ],
  )
  lines = [
    figures.Line(name, np.arange(x.shape[1]), np.exp(np.log(x + 1e-30).mean(0)))
    for name, x in excess.items()
  ]
  picture = study.Picture(
    'Excess of the loss over its start, geometric mean over seeds.',
    [figures.Panel('round', '(f − f*) / (start)', lines, y_scale='log')],
  )
  return study.Report(claims, seeds, [table], [picture], [_NOTE])


def _excess(ws, name, algorithm, options) -> np.ndarray:
  """f64[seeds, rounds + 1], f - f* over that of the start."""
  fields = {
    'algorithm': algorithm, **options, 'clients': CLIENTS, 'table': TABLE,
    'dimension': DIMENSION, 'local_steps': STEPS, 'client_lr': 0.2,
    'server_lr': 0.3, 'rounds': 300, 'seeds': 20,
  }  # fmt: skip
  name = name.replace(', ', '-').lower()
  compute = lambda: [_play(fields, options, s) for s in range(fields['seeds'])]
  return np.array(ws.cached(f'haddadpour/drift/{name}', fields, compute))


def _play(fields, options, seed) -> list[float]:
  rng = seeding.generator(seed, 'drift')
  curvature = rng.uniform(0.3, 2.0, (CLIENTS, DIMENSION))
  center = rng.standard_normal((CLIENTS, DIMENSION))
  best = (curvature * center).sum(0) / curvature.sum(0)
  hp = algorithms.Hyper(fields['client_lr'], fields['server_lr'], None)
  run = _program(fields['algorithm'], tuple(options.items()), fields['rounds'])
  # The optimum is 0, where float32 resolves an excess of any size.
  shifted = (center - best[None]).astype(np.float32)
  bent = curvature.astype(np.float32)
  batches = shifted[:, None, None], bent[:, None, None]
  ids = np.arange(CLIENTS, dtype=np.int32)
  cohort = rounds.Cohort(ids, np.ones(CLIENTS, np.float32), batches)
  start = jnp.asarray(-best, jnp.float32)
  w = run(jax.tree.map(jnp.float32, hp), start, cohort, jax.random.key(seed))
  path = np.concatenate([start[None], w]).astype(float)
  excess = (path**2 * curvature.mean(0)[None]).sum(1)
  return (excess / excess[0]).tolist()


@functools.cache
def _program(algorithm, options, count):
  """(hyper, start, cohort, key) -> f32[rounds, d], compiled."""
  own = {'local_steps': STEPS, 'sketch': sketches.count_sketch(*TABLE)}
  make = algorithms.make(algorithm, _loss, **own, **dict(options))
  mesh = mesh_lib.cohort_mesh(1)
  round_fn = rounds.run_round(make, mesh, clients_per_step=None)

  def run(hp, start, cohort, key):
    def step(state, _):
      state, _ = round_fn(hp, state, cohort, key)
      return state, state.params['w']

    state = rounds.init(make(hp), {'w': start}, CLIENTS)
    return jax.lax.scan(step, state, length=count)[1]

  return jax.jit(run)


def _loss(params, batch):
  center, curvature = batch
  return 0.5 * (curvature * (params['w'][None] - center) ** 2).sum()
