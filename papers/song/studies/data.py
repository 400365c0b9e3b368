"""Iterative sketching on images beside dense training: Song, abstract."""

import functools

from fl_sketch import models, sketches
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import figures, plots
import jax
import jax.numpy as jnp
import numpy as np

from ...common import registration, study, workspace
from ...common.workspace import Workspace
from . import races


def communication(ws: Workspace) -> study.Report:
  """Rounds and bytes to a loss, of every operator and without a sketch."""
  registered = registration.read('S0-Abs1')
  if ws.scale == 'quick':
    cell = registered['cell'][0] | {'dataset': 'digits', 'operators': ['srht']}
    registered |= {'seeds': [1, 2], 'cell': [cell | {'samples': 50}]}
    registered |= {'target': 0.5, 'most_rounds': 60}
  keys = 'converges', 'bytes', 'half', 'local'
  values: dict[str, dict] = {key: {} for key in keys}
  found, rows, panels = {}, [], []
  for cell in registered['cell']:
    own, lines = _measured(ws, registered, cell), {}
    for (what, steps), (op, d, run) in own.items():
      name = f'{cell["model"]}, {what}, K = {steps}'
      dense = own['dense', steps][2]
      rounds, sent = _rounds(run), _sent(run)
      ratio = sent / _sent(dense)
      found[name] = {k: x for k, x in run.items() if k != 'curve'}
      counts = workspace.shown(rounds, digits=0), f'{sent.mean() / 1e6:.3g}'
      rows.append([
        cell['model'], what, str(steps), f'{run["rate"]:.3g}', *counts,
        workspace.shown(ratio, digits=3), workspace.shown(run['score']),
      ])  # fmt: skip
      xs, *ys = run['curve']
      millions = np.array(xs) * run['bytes'] / 1e6
      lines.setdefault(steps, []).append(
        plots.mean_line(what, [millions] * len(ys), ys)
      )
      if what == 'dense':
        continue
      growth = 1 + op.properties.alpha(d)
      values['converges'][name] = rounds / _rounds(dense) / growth
      values['bytes'][name] = values['half'][name] = ratio
      if steps > 1:
        values['local'][name] = sent / _sent(own[what, 1][2])
    panels += [
      figures.Panel(
        'MB up and down of a client', 'training loss over the first', drawn,
        f'{cell["model"]}, K = {steps}', x_scale='log', y_scale='log',
      )
      for steps, drawn in lines.items()
    ]  # fmt: skip
  table = _CAPTION, _HEAD, rows
  return study.registered(registered, values, found, table, panels, _SETTING)


def _rounds(run):
  return np.array(run['rounds'], float)


def _sent(run):
  return run['bytes'] * _rounds(run)


def _measured(ws, registered, cell):
  """(what is sent, K) -> operator, d, its race; K = 5 at d / 16 alone."""
  data = sources.load(cell['dataset'], ws.data_dir)
  module = models.make(cell['model'], data.num_classes)
  shape = data.train['x'].shape[1:]
  start = lambda key: models.init_params(module, key, shape)
  d = models.num_params(start(jax.random.key(0)))
  mean, std = cell['scale']
  loss_fn = losses.classification(module, mean=mean, std=std)
  score = _accuracy(module, data.test, mean, std)
  draw = lambda seed: _samples(data.train, registered, cell, seed)
  ops: dict[tuple[str, int], sketches.Sketch] = {
    ('dense', k): sketches.identity() for k in (1, 5)
  }
  for kind in cell['operators']:
    for share in registered['shares']:
      for steps in (1, 5) if share == max(registered['shares']) else (1,):
        key = f'{kind}, d / {share}', steps
        ops[key] = races.operator(kind, d // share)
  own = {}
  for (what, steps), op in ops.items():
    setting = races.Race(
      loss_fn, draw, start, 0.0, registered['target'],
      registered['most_rounds'], local_steps=steps,
    )  # fmt: skip
    rate = cell['start_rate'][str(steps)]
    name = f'{cell["model"]}, {what}, {steps}'.replace(' / ', '_')
    fields = {k: x for k, x in registered.items() if k not in ('cell', 'claim')}
    run = ws.cached(
      f'song/data/{name}', fields | {'cell': cell, 'what': [what, steps]},
      functools.partial(races.race, registered, setting, op, rate, score),
    )  # fmt: skip
    own[what, steps] = op, d, run
  return own


def _samples(train, registered, cell, seed):
  """Images of a seed, sorted by class: two shards of them for each client."""
  rng, shards = np.random.default_rng(seed), 2 * registered['clients']
  count = registered['clients'] * cell['samples']
  picked = rng.choice(len(train['y']), count, replace=False)
  order = picked[np.argsort(train['y'][picked], kind='stable')]
  order = rng.permutation(order.reshape(shards, -1))
  order = order.reshape(registered['clients'], -1)
  images = train['x'][order].astype(np.float32) / 255
  return {'x': images, 'y': train['y'][order]}


def _accuracy(module, test, mean, std):
  """Params -> accuracy on the whole test set, %."""
  outputs = jax.jit(losses.outputs(module, mean=mean, std=std))
  images = test['x'].astype(np.float32) / 255
  right = lambda p: jnp.argmax(outputs(p, images), -1) == test['y']
  return lambda params: 100 * float(np.mean(right(params)))


_HEAD = (
  'model', 'what is sent', 'K', 'rate', 'rounds', 'MB', 'over dense',
  'test accuracy, %',
)  # fmt: skip
_CAPTION = 'To a fifth of the first training loss: a client, up and down'
_SETTING = (
  'Softmax regression on 2,000 images of MNIST (d = 7,850) and LeNet-5 on 600 '
  '(d = 61,706), four clients with two shards of sorted labels each, full '
  'gradients as in Algorithm 1. Each cell has the rate of the fewest rounds on '
  'the tuning seed, to a factor of 1.4; the test set is whole and not tuned on.'
)
