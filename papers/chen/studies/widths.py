"""Spectra of networks of several widths, trained by SAFL with Adam."""

import functools
from typing import Any

from fl_sketch import algorithms, models, runs, sketches
from fl_sketch.models import layers
from fl_sketch.runs import figures, plots
import flax.linen as nn
import jax
import numpy as np

from ...common import registration, study, summaries, workspace
from ...common.workspace import Workspace
from ..curvature import spectrum, spectrum_report
from . import small

_NAMES = 'start', 'half', 'end'  # of a training's marks
_KEPT = (
  'intrinsic_dimension', 'near_zero', 'exponent', 'r_squared', 'lambda_max',
)  # fmt: skip
_SETTING = (
  'MNIST, five clients with equal shares, one step of batch 64 in each of 300 '
  'rounds, SAFL with Adam, rate 0.001, block-cyclic tables of a tenth of the '
  'numbers. Networks are an MLP with one hidden layer and a LeNet of 2 and 4 '
  'channels and 30 and 21 units, times its factor. Hessians are of the loss of '
  '300 training samples, by Lanczos from one random direction a seed.'
)


class WideLeNet(nn.Module):
  """A LeNet whose widths have a common factor; factor 4 is near LeNet-5."""

  num_classes: int
  factor: int = 1

  @nn.compact
  def __call__(self, x):
    """Return logits, f32[batch, num_classes]."""
    for features, padding in ((2, 'SAME'), (4, 'VALID')):
      conv = layers.conv(features * self.factor, 5, padding)
      x = jax.nn.relu(layers.max_pool(conv(x)))
    x = x.reshape(len(x), -1)
    for width in (30, 21):
      x = jax.nn.relu(layers.dense(width * self.factor)(x))
    return layers.dense(self.num_classes)(x)


models.register(WideLeNet, name='wide_lenet', convolutional=True)


def _measured(ws, registered, net, options) -> dict[str, Any]:
  """Spectra of every seed at the start, half way and at the end, by name."""
  fields = {'dataset': registered['dataset'], 'model': net['model']}
  fields |= {'model_options': options, 'population': 5, 'cohort': 5}
  exp = runs.build(fields, ws.data_dir)
  d = models.num_params(exp.params)
  op = sketches.block_cyclic(d // 10)
  method = lambda loss_fn: algorithms.make(
    'safl', loss_fn, sketch=op, server_optimizer='adam(b2=0.99)'
  )
  work = small.Work(registered['rounds'], batch=64)
  play = small.runner(exp, method, work, 2, lambda params: params)
  rows = []
  for seed in net['seeds']:
    path, _ = play(0.001, seed)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(exp.data['x']))[:300].reshape(6, 50)
    batches = {k: x[chosen] for k, x in exp.data.items()}
    for mark in range(3):
      params = jax.tree.map(lambda x, mark=mark: x[mark], path)
      key = jax.random.key(seed)
      found = spectrum.slq(
        exp.loss_fn, params, batches, key, steps=net['steps']
      )
      rows.append(spectrum_report.row(mark, found, net['top']))
  split = {x: np.array([r[x] for r in rows], float) for x in _KEPT}
  tables = {k: x.reshape(-1, 3).T.tolist() for k, x in split.items()}
  return {'d': d, 'eigenvalues': rows[2]['eigenvalues'], **tables}


def spectra(ws: Workspace) -> study.Report:
  """Intrinsic dimension against d, and the power law, under sketched Adam."""
  registered = registration.read('S4-Widths') | ws.pick(_QUICK, {})
  slopes, near, seeds, rows, panels, found = {}, {}, {}, [], [], []
  for net in registered['net']:
    found = [
      ws.cached(
        f'widths/{net["key"]}-{i}',
        {**registered, 'net': net, 'size': i},
        functools.partial(_measured, ws, registered, net, options),
      )
      for i, options in enumerate(net['sizes'])
    ]
    sizes, lines = [x['d'] for x in found], []
    seeds[net['key']] = found
    for mark, name in enumerate(_NAMES):
      cell = f'{net["key"]}, {name}'
      ranks = np.array([x['intrinsic_dimension'][mark] for x in found])
      if len(sizes) > 1:  # not the network of the power law, of other seeds
        near |= {f'{cell}, d = {x["d"]:,}': x['near_zero'][mark] for x in found}
        slopes[cell] = summaries.growth(sizes, ranks)
        lines.append(plots.mean_line(name, [sizes] * len(ranks.T), ranks.T))
      rows += [
        [cell, f'{x["d"]:,}', *(
          workspace.shown(x[k][mark], scale, digits)
          for k, scale, digits in _COLUMNS
        )]
        for x in found
      ]  # fmt: skip
    if lines:
      panels.append(
        figures.Panel(
          'd', 'intrinsic dimension', lines, net['key'], x_scale='log'
        )
      )
  law = found[0]  # the last network is that of the power law
  of_law = lambda key: dict(zip(_NAMES, law[key], strict=True))
  values = {
    'growth': slopes,
    'trained': {k: x for k, x in slopes.items() if 'end' in k},
    'near': near,
    'law': of_law('r_squared'),
    'start': law['exponent'][0],
    'sum': of_law('exponent'),
  }
  head = 'network', 'd', 'intrinsic dimension', 'near zero, %', 'power', 'R²'
  table = 'Hessians, means over seeds', head, rows
  return study.registered(registered, values, seeds, table, panels, _SETTING)


_COLUMNS = (
  ('intrinsic_dimension', 1, 1), ('near_zero', 100, 2), ('exponent', 1, 2),
  ('r_squared', 1, 3),
)  # fmt: skip
_QUICK = {
  'dataset': 'digits', 'rounds': 4,
  'net': [{
    'key': 'mlp', 'model': 'mlp', 'sizes': [{'widths': [2]}, {'widths': [4]}],
    'seeds': [1, 2], 'steps': 20, 'top': 5,
  }],
}  # fmt: skip
