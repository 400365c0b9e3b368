"""Experiments for the theory of Song et al., arXiv:2210.08371."""

import functools
import itertools
import math

from fl_sketch.runs import figures
import numpy as np

from ...common import registration, study, summaries, workspace
from ...common.workspace import Workspace
from . import runs as runs_lib

_MEANS = 'Lines are means over seeds, bands their intervals of 95 %.'


def rates(ws: Workspace) -> study.Report:
  """Measured gaps against the bounds of sections 5 and E."""
  quick = {'seeds': [0, 1], 'rounds': 20}
  registered = registration.read('S0-Bounds') | ws.pick(quick, {})
  rounds, runs = registered['rounds'], registered['seeds']
  values, rows, seeds, lines = {}, [], {}, []
  for case in runs_lib.CASES:
    fields = {'case': case.name, 'rounds': rounds, 'seeds': runs}
    fields |= runs_lib.SIZES
    compute = functools.partial(runs_lib.ratios, case, rounds, runs)
    ratios = np.array(ws.cached(f'song/bounds/{case.name}', fields, compute))
    values[case.name] = ratios.T
    mean, low, high = summaries.interval(ratios)
    cell = f'{mean[-1]:.3g}'
    rows.append([case.text, f'{mean.max():.3g}', cell])
    seeds[case.name] = ratios[:, -1]
    xs = 1 + np.arange(rounds)
    lines.append(figures.Line(case.text, xs, mean, low, high, cell=cell))
  panel = figures.Panel(
    'round', 'measured over the bound', lines, y_scale='log', y_mark=1.0
  )
  caption = f'Measured over bound: how loose the bounds are; {len(runs)} runs'
  head = 'theorem', 'largest', 'after the last'
  picture = study.Picture(
    'What a theorem bounds over its bound, SRHT of 8 of 32 numbers, with '
    'intervals of 95 %. Below the line the theorem holds; far below, it says '
    'little.',
    [panel],
  )
  tables = [study.Table(caption, head, rows)]
  claims = registration.claims(registered, values)
  note = (
    'A claim is of 200 rounds and 64 seeds; their numbers are not stored, but '
    'come back in half a minute.'
  )
  short = [claim._replace(values=()) for claim in claims]
  return study.Report(short, seeds, tables, [picture], [note])


def privacy(ws: Workspace) -> study.Report:
  """Accuracy against epsilon, of samples, by private iterative sketching."""
  quick = {'seeds': [0, 1], 'epsilons': [3.0]}
  registered = registration.read('S0-DPcost') | ws.pick(quick, {})
  named, promised = _private_runs(ws, registered)
  rows = [
    [name, f'{promised[name]:.3g}', workspace.shown(x)]
    for name, x in named.items()
  ]
  *noisy, none = named
  values = {
    'lost': {f'epsilon {e}': named[none] - named[e] for e in noisy},
    'gains': {
      f'{a} to {b}': named[b] - named[a] for a, b in itertools.pairwise(named)
    },
  }
  ends = summaries.interval(np.transpose([*named.values()]))
  label = 'epsilon of a sample (inf: no noise)'
  line = figures.Line('', [*named], *ends, cell=rows[-1][-1])
  panel = figures.Panel(label, 'test accuracy, %', [line])
  head = 'epsilon asked', "the accountant's", 'test accuracy, %'
  return study.Report(
    registration.claims(registered, values),
    named,
    [study.Table('Algorithm 2 on logistic regression, digits', head, rows)],
    [study.Picture(f'Test accuracy against epsilon. {_MEANS}', [panel])],
    [
      'Samples are protected, at zero-out; delta 1e-5; ten clients. Runs '
      'without noise draw and clip samples as the others do.'
    ],
  )


def _private_runs(ws, registered):
  """Accuracies in per cent of all seeds, and the accountant's epsilon."""
  base = {
    'dataset': 'digits', 'model': 'linear', 'standardize': False,
    'population': 10, 'cohort': 10, 'rounds': ws.pick(4, 100),
    'rounds_per_dispatch': ws.pick(2, 10), 'eval_every': ws.pick(4, 20),
    'checkpoint_every': ws.pick(4, 100), 'local_steps': 2,
    'sketch': {'kind': 'srht', 'size': 256}, 'batch_size': 30,
    'client_lr': 0.3, 'sweep': {'seed': registered['seeds']},
    'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
    'delta': 1e-5, 'clip_norm': 1.0,
  }  # fmt: skip
  accuracy, promised = {}, {}
  for epsilon in (*registered['epsilons'], math.inf):
    name = f'{epsilon:g}'
    none = {'noise_multiplier': 0.0}
    noise = {'epsilon': epsilon} if math.isfinite(epsilon) else none
    runs = ws.sweep(f'song/cost/{name}', base | noise)
    accuracy[name] = 100 * np.array([run.final() for run in runs])
    promised[name] = float(runs[0].row['epsilon'])
  return accuracy, promised
