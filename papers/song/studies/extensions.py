"""Iterative sketching with momentum and minibatches: Song, section 8."""

import functools
import itertools

from fl_sketch import sketches
from fl_sketch.runs import figures
import jax.numpy as jnp
import numpy as np

from ...common import registration, study, summaries, workspace
from ...common.workspace import Workspace
from . import races

_QUICK = {
  'tuning_seeds': [0], 'seeds': [1, 2], 'samples': 32, 'dimension': 16,
  'sizes': [8], 'operators': ['srht'], 'target': 0.5,
}  # fmt: skip


def least_squares(registered, seed: int) -> dict[str, np.ndarray]:
  """Rows whose mean square is exactly diagonal, and labels w* = 0 explains."""
  clients, samples, d = (
    registered[k] for k in ('clients', 'samples', 'dimension')
  )
  rng, n = np.random.default_rng(seed), clients * samples
  drawn = rng.standard_normal((n, d + 1))
  columns = np.linalg.qr(drawn)[0] * n**0.5
  curvature = np.geomspace(1, 1 / registered['condition'], d)
  rows = columns[:, :d] * curvature**0.5
  labels = registered['noise'] * columns[:, d]
  shaped = lambda x: x.reshape(clients, samples, -1).astype(np.float32)
  return {'x': shaped(rows), 'y': shaped(labels)[..., 0]}


def _race(registered, options) -> races.Race:
  loss_fn = lambda w, s: 0.5 * jnp.mean((s['x'] @ w - s['y']) ** 2)
  return races.Race(
    loss_fn, functools.partial(least_squares, registered),
    lambda key: jnp.ones(registered['dimension']),
    0.5 * registered['noise'] ** 2, registered['target'],
    registered['most_rounds'], client_lr=registered['client_lr'], **options,
  )  # fmt: skip


def _measured(ws, registered):
  """Every method without a sketch and with each: names -> its race."""
  fields = {k: v for k, v in registered.items() if k != 'claim'}
  parts = itertools.product(registered['operators'], registered['sizes'])
  ops = {f'{kind}, b = {b}': races.operator(kind, b) for kind, b in parts}
  ops = {'dense': sketches.identity()} | ops
  for method, options in registered['methods'].items():
    for name, op in ops.items():
      cell = ws.cached(
        f'song/extensions/{method}, {name}', fields | {'method': method},
        functools.partial(
          races.race, registered, _race(registered, options), op,
          registered['start_rate'],
        ),
      )  # fmt: skip
      yield method, name, op, cell


def extensions(ws: Workspace) -> study.Report:
  """Rounds and numbers sent of four methods with a sketch and without."""
  registered = registration.read('S0-Ext') | ws.pick(_QUICK, {})
  d, rows, found = registered['dimension'], [], {}
  keys = 'factor', 'total', 'total momentum', 'pays'
  values: dict[str, dict] = {key: {} for key in keys}
  totals: dict[str, dict] = {}
  for method, name, op, cell in _measured(ws, registered):
    rounds, key = np.array(cell['rounds']), f'{method}, {name}'
    found[key] = {k: cell[k] for k in ('rate', 'trials', 'rounds')}
    dense = np.array(found[f'{method}, dense']['rounds'])
    share = op.properties.floats(np.zeros(d)) / d
    total = share * rounds / dense
    shown = workspace.shown(rounds, digits=0), workspace.shown(total, digits=2)
    rows.append([method, name, f'{cell["rate"]:.3g}', *shown])
    if name == 'dense':
      continue
    kind = name.partition(',')[0]
    totals.setdefault(method, {}).setdefault(kind, []).append(total)
    if method != 'plain':
      alpha = op.properties.alpha
      assert alpha is not None  # all of these state it
      values['factor'][key] = rounds / dense / (1 + alpha(d))
      values['total'][key] = total
    if method == 'momentum':
      plain = np.array(found[f'plain, {name}']['rounds'])
      values['total momentum'][key] = total
      values['pays'][key] = rounds / plain
  head = 'method', 'what is sent', 'rate', 'rounds', 'b T over dense'
  caption = f'd = {d}: rounds to {registered["target"]:g} of the first gap'
  panels = _panels(totals, registered['sizes'])
  table = caption, head, rows
  return study.registered(registered, values, found, table, panels, _SETTING)


def _panels(totals, sizes) -> list[figures.Panel]:
  """A panel for each method, a line for each operator."""
  labels = 'numbers in a table, b', 'b T over d T without a sketch'
  line = lambda kind, x: figures.Line(
    kind, sizes, *summaries.interval(np.stack(x, 1))
  )
  return [
    figures.Panel(*labels, [line(*x) for x in own.items()], method, y_mark=1.0)
    for method, own in totals.items()
  ]


_SETTING = (
  'Least squares with condition number 100, four clients of 256 rows each, '
  'from w = 1; batches have 8 rows, local SGD takes 4 steps. Each method has '
  'the rate of the fewest rounds on the tuning seeds, with a sketch and '
  'without, to a factor of 1.4.'
)
