"""Rounds of methods with error feedback against the dimension, beside SAFL."""

import functools
import itertools
from typing import Any

from fl_sketch import algorithms, codecs, sketches
from fl_sketch.runs import figures, plots
import jax
import jax.numpy as jnp
import numpy as np

from ...common import registration, study, summaries, workspace
from ...common.workspace import Workspace
from . import dimensions

_SETTING = (
  f'{dimensions.CLIENTS} clients send about {dimensions.SIZE} numbers a round '
  'whatever d is: a table; 32 values and their places (EF21); 48 values of 4 '
  'bits with their places (CocktailSGD, of a random fifth of the coordinates). '
  'w^T A w / 2 has the eigenvalues i^-1.5 and no gradient noise; the start has '
  'coordinates of 0.5 to 1.5 times a constant along its axes. Aligned, the '
  'axes are those of A, which favours methods that choose coordinates; turned, '
  'a random Hadamard rotation is before A. Each cell has the rate that needs '
  'the fewest rounds on the tuning seeds. 3PC is not in the library.'
)


def _method(name: str, loss_fn):
  """The `make` of a method whose one rate is that of the server."""
  size, clients = dimensions.SIZE, dimensions.CLIENTS
  if name.startswith('safl'):
    op = sketches.srht(size)
    return algorithms.make(
      'safl', loss_fn, sketch=op, server_optimizer=name.removeprefix('safl-')
    )
  if name == 'ef21':
    codec = codecs.top_k(size // 2)
    return algorithms.make(name, loss_fn, codec=codec, population=clients)
  codec = codecs.quantized_top_k(k=48, bits=4, bucket=16)
  make = algorithms.make(
    'cocktail_sgd', loss_fn, codec=codec, mask_ratio=0.2
  )  # whose rate is that of the clients
  one = jnp.float32(1)
  return lambda hp: make(hp._replace(client_lr=hp.server_lr, server_lr=one))


def _axes(basis: str, d: int) -> dict[str, Any]:
  """Options of `count`: axes, and a start of similar size along each."""
  start = functools.partial(jax.random.uniform, minval=0.5, maxval=1.5)
  if basis == 'aligned':
    return {'draw': start}
  signs = jax.random.rademacher(jax.random.key(7), (d,), jnp.float32)
  back = lambda w: signs * sketches.fwht(w) / d**0.5
  turn = lambda w: sketches.fwht(signs * w) / d**0.5
  return {'turn': turn, 'draw': lambda *args: back(start(*args))}


def _tuned(name, basis, d, registered) -> dict[str, Any]:
  """Rounds of every reported seed at the best rate of the tuning seeds."""
  rounds = functools.partial(
    dimensions.count, functools.partial(_method, name),
    np.arange(1, d + 1.0) ** -registered['exponent'], [registered['target']],
    most=registered['most_rounds'], noise_size=0.0, **_axes(basis, d),
  )  # fmt: skip
  rates = registered['rates'][name]
  [best] = dimensions.best_rates(rounds, registered, rates, targets=1)
  final = rounds(rates=[best], seeds=registered['seeds'])[0, 0]
  return {'rate': best, 'rounds': final.tolist()}


def growth(ws: Workspace) -> study.Report:
  """Growth of rounds with d of EF21, CocktailSGD and SAFL, same numbers."""
  registered = registration.read('S4-Rivals-LogD') | ws.pick(_QUICK, {})
  sizes, slopes, seeds, rows = registered['dimensions'], {}, {}, []
  panels: dict[str, list[figures.Line]] = {'aligned': [], 'turned': []}
  for name, basis in itertools.product(registered['rates'], panels):
    found = [
      ws.cached(
        f'rivals_log_d/{name}-{basis}-{d}',
        registered | {'d': d},
        functools.partial(_tuned, name, basis, d, registered),
      )
      for d in sizes
    ]
    times, cell = np.array([x['rounds'] for x in found]), f'{name}, {basis}'
    slopes[cell] = summaries.growth(sizes, times)
    seeds[cell] = {'d': sizes, 'rounds': times}
    line = plots.mean_line(name, [sizes] * len(times.T), times.T)
    panels[basis].append(line)
    rows.append([
      name, basis, *(workspace.shown(t, digits=0) for t in times),
      workspace.shown(slopes[cell], digits=2),
      ', '.join(f'{x["rate"]:g}' for x in found),
    ])  # fmt: skip
  part = lambda ours, words: {
    k: v
    for k, v in slopes.items()
    if k.startswith('safl') == ours and words in k
  }
  values = {
    'turned': part(False, 'turned'), 'aligned': part(False, 'aligned'),
    'safl': part(True, ''),
  }  # fmt: skip
  head = 'method', 'axes', *(f'd = {d:,}' for d in sizes), 'growth', 'rates'
  drawn = [
    figures.Panel('d', 'rounds', x, basis, x_scale='log', y_scale='log')
    for basis, x in panels.items()
  ]
  table = 'Rounds, and their growth as a power of d', head, rows
  return study.registered(registered, values, seeds, table, drawn, _SETTING)


_QUICK = {
  'seeds': [1, 2], 'dimensions': [256, 512], 'target': 0.5, 'most_rounds': 50,
  'rates': {'ef21': [0.1], 'safl-adam': [0.03]},
}  # fmt: skip
