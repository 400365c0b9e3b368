"""Choices that Chen et al. leave open or call essential, on a small network.

The server's optimizer, who draws the operators, local steps, and the rates.
"""

from collections.abc import Mapping
import functools
from typing import Any

from fl_sketch import algorithms, models, rounds as rounds_lib, runs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.runs import figures, plots
import jax
import numpy as np

from ...common import registration, study, workspace
from ...common.workspace import Workspace
from . import small

_MARKS = 5  # of the curves, beside the start
_SETTING = (
  'An MLP of width 64 on Fashion-MNIST, five clients with equal shares, SRHT '
  'with 1 % of the numbers; b2 = 0.99 (Adam, AMSGrad, Yogi), momentum 0.9. '
  'With one step, batch 32, a client sends its gradient, and the server has '
  'the only rate. The study of local steps has batch 10 and the client rate '
  '0.1. Rates have the least training loss on a seed of their own, with a '
  'worse half decade on either side. With operators of their own, clients '
  'send tables that the server averages and reads by the operator of the '
  'first client, or reads one by one. A model that is not finite has an '
  'accuracy of 10 %.'
)


def _own_operators(loss_fn, op, server: str, each: bool):
  """The `make` of SAFL whose clients draw operators of their own."""

  def update(deltas, state, params=None, *, keys, comm, ids, **extra):
    key = functools.partial(jax.random.fold_in, keys.round)
    send = lambda i, x: op.sketch(key(i), x)
    tables = jax.vmap(send)(ids, deltas)
    if each:
      read = lambda i, x: op.desketch(key(i), x, params)
      tables = jax.vmap(read)(ids, tables)
    mean, up = comm.stacked_mean(tables, extra['weight'])
    mean = mean if each else op.desketch(key(0), mean, params)
    return mean, comms.bill(up)

  return lambda hp: rounds_lib.federated(
    Task(loss_fn).steps(hp),
    chain.exchange(lambda params: comms.bill(), update),
    t.broadcast(),
    server_optimizers.server_step(hp, server),
  )


def _method(cell: Mapping[str, Any], size: int, loss_fn):
  """The `make` of a cell: dense, SAFL, or clients with own operators."""
  server, op = cell['server'], sketches.srht(size)
  operators = cell.get('operators', 'shared')
  if operators == 'dense':
    return algorithms.make('fedavg', loss_fn, server_optimizer=server)
  if operators in ('own', 'own, each'):
    return _own_operators(loss_fn, op, server, operators == 'own, each')
  rounds = {'shared': None, 'one': 0}[operators]
  return algorithms.make(
    'safl', loss_fn, sketch=op, server_optimizer=server, hash_rounds=rounds
  )


def _run(exp, cell, registered) -> dict[str, Any]:
  """Tune a cell's rate, and run it over the reported seeds."""
  size = max(20, models.num_params(exp.params) // 100)
  work = small.Work(registered['rounds'], **cell.get('work', {}))
  play = small.runner(
    exp, functools.partial(_method, cell, size), work, _MARKS,
    small.loss_and_accuracy(exp),
  )  # fmt: skip
  rates, losses = registered['rates'][cell['rates']], {}
  grid = workspace.HALF_DECADES
  for _ in range(registered['extensions'] + 1):
    for rate in {*rates} - {*losses}:
      (loss, _), _ = play(rate, registered['tuning_seed'])
      losses[rate] = float(np.nan_to_num(loss[-1], nan=np.inf))
    best = min(losses, key=losses.__getitem__)
    at = grid.index(best)
    rates = grid[at - 1 : at + 2]
  found = {'rate': best, 'trials': sorted(losses.items())}
  for name, rate in {'tuned': best, 'printed': cell.get('printed')}.items():
    if rate is not None:
      made = [play(rate, seed) for seed in registered['seeds']]
      found[name] = {
        'loss': np.array([x[0][0] for x in made], float).round(6).tolist(),
        'accuracy': np.array([x[0][1] for x in made], float).round(4).tolist(),
      }
      found['sent'] = int(made[0][1])
  return found


def choices(ws: Workspace) -> study.Report:
  """Servers, operators, local steps and printed rates under sketches."""
  registered = registration.read('S4-Choices')
  if ws.scale == 'quick':
    few = [c for c in registered['cell'] if c['name'] in _FEW]
    registered |= _QUICK | {'cell': few}
  fields = registered['problem'] | {'population': 5, 'cohort': 5}
  exp = runs.build(fields, ws.data_dir)
  found = {
    cell['name']: ws.cached(
      f'choices/{cell["name"].replace(" ", "-")}', {**registered, 'cell': cell},
      functools.partial(_run, exp, cell, registered),
    )
    for cell in registered['cell']
  }  # fmt: skip
  curves = {k: np.array(x['tuned']['accuracy']) for k, x in found.items()}
  end = {k: x[:, -1] for k, x in curves.items()}
  there = {
    k: np.array(x['printed']['accuracy'])[:, -1]
    for k, x in found.items()
    if 'printed' in x
  }
  values: dict[str, Any] = {
    row['key']: {
      f'{a}, {b}': end[a] - end[b]
      for a, b in row.get('pairs', [])
      if {a, b} <= {*end}
    }
    for row in registered['claim']
  }
  values['rates'] = {k: end[k] - x for k, x in there.items()}
  values['bits'] = found['20 steps']['sent'] / found['1 step']['sent']
  rows = [
    [k, f'{x["rate"]:g}', f'{x["sent"]:,}', workspace.shown(end[k]),
     workspace.shown(there[k]) if k in there else '']
    for k, x in found.items()
  ]  # fmt: skip
  marks = np.linspace(0, registered['rounds'], _MARKS + 1)
  panels = [
    figures.Panel('round', 'test accuracy, %', [
      plots.mean_line(k, [marks] * len(end[k]), curves[k])
      for k in names if k in end
    ])
    for names in registered['panels']
  ]  # fmt: skip
  table = 'Test accuracy at the end, %', _HEAD, rows
  return study.registered(registered, values, found, table, panels, _SETTING)


_HEAD = 'run', 'rate', 'bytes up', 'accuracy', "accuracy at the paper's rate"
_QUICK = {
  'problem': {'dataset': 'digits', 'model_options': {'widths': [8]}},
  'seeds': [1, 2], 'rounds': 10, 'extensions': 0, 'panels': [['adam']],
  'rates': {'adaptive': [0.01], 'plain': [0.1]},
}  # fmt: skip
_FEW = 'adam', 'own operators', '1 step', '20 steps'  # for a rehearsal
