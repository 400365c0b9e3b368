"""Rounds of SAFL against the dimension at one size of tables: the headline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import itertools
from typing import Any, NamedTuple

from fl_sketch import algorithms, sketches
from fl_sketch.runs import figures, plots
import jax
import jax.numpy as jnp
import numpy as np

from ...common import programs, registration, study, summaries, workspace
from ...common.workspace import Workspace

CLIENTS, SIZE = 2, 64  # a table has 64 numbers
_NOISE = 0.01  # squared norm of a client's gradient noise
_SETTING = (
  f'{CLIENTS} clients take one step a round on w^T A w / 2, A diagonal with '
  'the eigenvalues i^-s; their gradients have Gaussian noise along A, of '
  f'squared norm {_NOISE:g}, where the first gradient has norm 1. The start is '
  f'normal. A table has {SIZE} numbers whatever d is. Each cell has the rate '
  'that needs the fewest rounds on the tuning seeds, and each target its own. '
  'The sum of the eigenvalues over the largest is the intrinsic dimension: it '
  'is bounded for s above 1, grows as log d at 1, as d^0.1 at 0.9, and is d at '
  's = 0. Gaussian sketches, which have d columns to draw, stop at d = 4,096.'
)


class Cell(NamedTuple):
  """A diagonal Hessian of eigenvalues i^-exponent, and how SAFL meets it."""

  exponent: float
  operator: str
  server: str
  dimension: int


def counting(cell: Cell, group: Mapping[str, Any]) -> Callable[..., np.ndarray]:
  """Return `count` of rates and seeds, of SAFL in a cell of a group."""
  curvature = np.arange(1, cell.dimension + 1.0) ** -cell.exponent
  is_count = cell.operator == 'count_sketch'
  options = {'rows': 1, 'cols': SIZE} if is_count else {'size': SIZE}
  op = sketches.make(cell.operator, **options)
  make = lambda loss_fn: algorithms.make(
    'safl', loss_fn, sketch=op, server_optimizer=cell.server
  )
  numbers = make, curvature, group['targets']
  return functools.partial(count, *numbers, most=group['most_rounds'])


def count(
  method: Callable[[Any], Any],
  curvature: np.ndarray,
  targets: Sequence[float],
  rates: Sequence[float],
  seeds: Sequence[int],
  most: int,
  *,
  noise_size: float = _NOISE,
  turn: Callable[[jax.Array], jax.Array] = lambda w: w,
  draw: Callable[..., jax.Array] = jax.random.normal,
) -> np.ndarray:
  """Count rounds until the squared gradient is a target.

  f64[targets, rates, seeds], targets falling; NaN where `most` rounds are not
  enough. `method` is loss -> the algorithm's `make`; `turn` is orthogonal, to
  the axes of the Hessian; `draw` (key, shape) is the direction of the start.
  """
  bent = jnp.asarray(curvature, jnp.float32)
  noise = jnp.sqrt(noise_size * bent / bent.sum())
  goals = jnp.asarray(targets, jnp.float32)

  def loss_fn(w, x):
    w = turn(w)
    return 0.5 * jnp.sum(bent * w**2) + jnp.sum(noise * w * x[0])

  begin = programs.everybody(method(loss_fn), CLIENTS)
  shape = CLIENTS, 1, 1, bent.size

  def one(rate, seed):
    hp = algorithms.Hyper(jnp.float32(1), rate)
    key, draws, first = jax.random.split(jax.random.key(seed), 3)
    start = draw(first, bent.shape)
    start = start / jnp.linalg.norm(bent * turn(start))

    def step(carry):
      state, done, hits = carry
      x = jax.random.normal(jax.random.fold_in(draws, done), shape)
      state, _ = play_round(state, x)
      reached = jnp.sum((bent * turn(state.params)) ** 2) <= goals
      hits = jnp.where(reached & (hits > most), done + 1, hits)
      return state, done + 1, hits

    goes_on = lambda carry: (carry[1] < most) & (carry[2] > most).any()
    state, play_round = begin(hp, key, start)
    hits = jnp.full(goals.shape, most + 1, jnp.int32)
    return jax.lax.while_loop(goes_on, step, (state, jnp.int32(0), hits))[2]

  both = np.array([*itertools.product(rates, seeds)])
  play = jax.jit(jax.vmap(one, out_axes=1))
  hits = play(both[:, 0].astype(np.float32), both[:, 1].astype(np.int32))
  times = np.where(hits > most, np.nan, hits)
  return times.reshape(len(targets), len(rates), len(seeds))


def best_rates(
  rounds: Callable[..., np.ndarray],
  registered: Mapping[str, Any],
  rates: Sequence[float],
  targets: int,
) -> list[float]:
  """Return the rate of the fewest rounds to each target on the tuning seeds.

  `rounds` takes rates and seeds, see `count`. A single rate is not tuned.
  """
  if len(rates) == 1:
    return [*rates] * targets
  trials = rounds(rates=rates, seeds=registered['tuning_seeds'])
  return [
    rates[i] for i in np.nan_to_num(trials, nan=np.inf).mean(-1).argmin(-1)
  ]


def _tuned(cell: Cell, registered: Mapping[str, Any], group: Mapping[str, Any]):
  """Return the rounds of every seed to every target, each at its best rate."""
  rounds, targets = counting(cell, group), len(group['targets'])
  best = best_rates(rounds, registered, registered['rates'], targets)
  played = sorted({*best})
  final = rounds(rates=played, seeds=registered['seeds'])
  return [
    {'rate': rate, 'rounds': final[i, played.index(rate)].tolist()}
    for i, rate in enumerate(best)
  ]


def _cells(ws, registered, group) -> Iterator[tuple[list[Cell], Any]]:
  """Every line of cells over the dimensions, with what was measured."""
  registered = registered | group  # a group may have servers and rates
  for exponent, operator, server in itertools.product(
    group['exponents'], registered['operators'], registered['servers']
  ):
    most = 4096 if operator == 'gaussian' else np.inf
    sizes = [d for d in group['dimensions'] if d <= most]
    cells = [Cell(exponent, operator, server, d) for d in sizes]
    measured = [
      ws.cached(
        f'log_d/{group["key"]}-{exponent:g}-{operator}-{server}-{cell.dimension}',
        {'cell': cell, 'group': group, 'rates': registered['rates']},
        functools.partial(_tuned, cell, registered, group),
      )
      for cell in cells
    ]
    yield cells, measured


def headline(ws: Workspace, name: str = 'S4-LogD') -> study.Report:
  """Rounds to a given gradient, and their growth with the dimension."""
  registered = registration.read(name)
  if ws.scale == 'quick':
    groups = [_QUICK_GROUP | {'key': g['key']} for g in registered['group']]
    registered |= _QUICK | {'group': groups}
  slopes: dict[str, dict[str, np.ndarray]] = {}
  panels, rows, seeds = [], [], {}
  for group in registered['group']:
    own, lines = slopes.setdefault(group['key'], {}), []
    for cells, measured in _cells(ws, registered, group):
      sizes = [cell.dimension for cell in cells]
      for i, target in enumerate(group['targets']):
        times = np.array([m[i]['rounds'] for m in measured], float)
        s, operator, server, _ = cells[0]
        name = f's = {s:g}, {operator}, {server}, to {target:g}'
        own[name] = summaries.growth(sizes, times)
        seeds[name] = {'d': sizes, 'rounds': times}
        lines.append(plots.mean_line(name, [sizes] * len(times.T), times.T))
        rows.append([
          f'{s:g}', operator, server, f'{target:g}', _each(times, sizes),
          workspace.shown(own[name], digits=2),
          ', '.join(f'{m[i]["rate"]:g}' for m in measured),
        ])  # fmt: skip
    panels.append(
      figures.Panel('d', 'rounds', lines, group['key'], x_scale='log')
    )
  caption = 'Rounds at each dimension, and their growth as a power of it.'
  table, notes = (caption, _HEAD, rows), registered.get('notes', [])
  return study.registered(
    registered, slopes, seeds, table, panels, _SETTING, *notes
  )


one_rate = functools.partial(headline, name='S4-LogD-Rate')


def _each(times, sizes) -> str:
  """The rounds at each dimension, as a cell of the table."""
  cells = [
    'not reached' if np.isnan(t).any() else workspace.shown(t, digits=0)
    for t in times
  ]
  pairs = zip(sizes, cells, strict=True)
  return '; '.join(f'{d:,}: {cell}' for d, cell in pairs)


_HEAD = 's', 'operator', 'server', 'target', 'd: rounds', 'growth', 'rates'
_QUICK = {
  'tuning_seeds': [0], 'seeds': [1, 2], 'rates': [0.03],
  'operators': ['count_sketch'], 'servers': ['adam'],
}  # fmt: skip
_QUICK_GROUP = {
  'exponents': [2.0], 'targets': [0.5], 'dimensions': [128, 256],
  'most_rounds': 20,
}  # fmt: skip
