"""Experiments for the theory of Song et al., arXiv:2210.08371."""

import functools
import math

from fl_sketch import reporting
from fl_sketch.reproduce import lab as lab_lib, study
from fl_sketch.reproduce.song import runs as runs_lib
from fl_sketch.theory import song
import numpy as np


def rates(lab: lab_lib.Lab) -> study.Report:
  """Measured gaps against the bounds of sections 5 and E."""
  rounds, runs = lab.pick(20, 200), lab.pick(4, 64)
  axes = reporting.new_axes('round', 'measured over bound')
  claims, rows, seeds = [], [], {}
  for i, case in enumerate(runs_lib.CASES):
    fields = {'case': case.name, 'rounds': rounds, 'runs': runs}
    fields |= runs_lib.SIZES
    compute = functools.partial(runs_lib.ratios, case, rounds, runs)
    ratios = lab.kept(f'song/rates/{case.name}', fields, compute)
    mean, error = np.array(ratios['mean']), np.array(ratios['error'])
    upper = mean + 5 * error
    worst = int(np.argmax(upper))
    text = (
      f'{case.text}: measured and 5 standard errors over the bound, the '
      'largest of all rounds'
    )
    measured, error = float(upper[worst]), float(error[worst])
    claims.append(study.Claim(text, measured, '<=', 1.0, error))
    rows.append([case.text, f'{mean.max():.3g}', f'{mean[-1]:.3g}'])
    seeds[case.name] = ratios['last']
    axes.plot(1 + np.arange(rounds), mean, label=case.text, **reporting.look(i))
  axes.set_yscale('log')
  axes.axhline(1, color='0.3', linewidth=1)
  axes.legend(fontsize=7, frameon=False)
  caption = f'Measured over bound: how loose the bounds are; {runs} runs'
  head = 'theorem', 'largest', 'after the last'
  picture = study.drawn(
    'Measured gap over its bound, SRHT of 8 of 32 numbers. Below the line '
    'the theorem holds; far below, it says little.',
    axes,
  )
  tables = [study.Table(caption, head, rows)]
  return study.Report(claims, seeds, tables, [picture])


def communication(lab: lab_lib.Lab) -> study.Report:
  """Rounds times the size of a table do not depend on the size."""
  dimension, sizes = lab.pick((32, (4, 16)), (128, (4, 16, 64)))
  times = lab.kept(
    'song/communication',
    {'d': dimension, 'sizes': list(sizes), 'runs': 16, 'target': 0.01},
    lambda: runs_lib.rounds_to(0.01, dimension, sizes, runs=16),
  )
  slowdown = lambda b: song.slowdown(dimension / b - 1)
  product = np.multiply(sizes, times).tolist()
  rows = [
    [str(b), study.rounds(t), f'{bt:,.0f}', f'{slowdown(b):g}']
    for b, t, bt in zip(sizes, times, product, strict=True)
  ]
  axes = reporting.new_axes('numbers in a table, b', 'rounds T, and b T')
  axes.loglog(sizes, times, marker='o', label='T', **reporting.look(0))
  axes.loglog(sizes, product, marker='s', label='b T', **reporting.look(1))
  reporting.plain_ticks(axes.xaxis)
  axes.legend(frameon=False)
  spread = np.max(product) / np.min(product)
  claim = study.Claim('largest over smallest b T', spread, '<=', 1.5)
  caption = f'SRHT, d = {dimension}: rounds to a hundredth of the first gap'
  return study.Report(
    [claim],
    {'rounds': times},
    [study.Table(caption, ('b', 'T', 'b T', '1 + alpha'), rows)],
    [study.drawn('What is sent in all, b T, against b.', axes)],
    ['Each b at the largest step of Theorem E.1, on equal curvatures.'],
  )


def privacy(lab: lab_lib.Lab) -> study.Report:
  """Accuracy against epsilon, of samples, by private iterative sketching."""
  accuracy, promised = _private_runs(lab)
  means = [100 * float(np.mean(x)) for x in accuracy.values()]
  rows = [
    [f'{e:g}', f'{promised.get(e, math.inf):.3g}', lab_lib.shown(x, 100)]
    for e, x in accuracy.items()
  ]
  label = 'epsilon of a sample (the last is none)'
  axes = reporting.new_axes(label, 'accuracy, %')
  named = {f'{e:g}': x for e, x in accuracy.items()}
  axes.plot([*named], means, marker='o', **reporting.look(0))
  shares = [epsilon / wanted for wanted, epsilon in promised.items()]
  claims = [
    study.Claim(
      'least gain in test accuracy from an epsilon to the next, points',
      float(np.diff(means).min()), '>=', 0.0,
    ),
    study.Claim(
      "largest share of the asked epsilon that the accountant's is",
      max(shares), '<=', 1.0,
    ),
  ]  # fmt: skip
  head = 'epsilon asked', "the accountant's", 'test accuracy, %'
  return study.Report(
    claims,
    named,
    [study.Table('Algorithm 2 on logistic regression, digits', head, rows)],
    [study.drawn('Accuracy against epsilon.', axes)],
    ['Samples are protected, at zero-out; delta 1e-5; ten clients.'],
  )


def _private_runs(lab):
  """Accuracies of all seeds by epsilon, and the epsilon of the accountant."""
  base = {
    'dataset': 'digits', 'model': 'linear', 'standardize': False,
    'population': 10, 'cohort': 10, 'rounds': lab.pick(4, 100),
    'rounds_per_dispatch': lab.pick(2, 10), 'eval_every': lab.pick(4, 20),
    'checkpoint_every': lab.pick(4, 100), 'local_steps': 2,
    'sketch': {'kind': 'srht', 'size': 256}, 'batch_size': 30,
    'client_lr': 0.3, 'sweep': {'seed': lab.seeds()},
  }  # fmt: skip
  private = base | {
    'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
    'delta': 1e-5, 'clip_norm': 1.0,
  }  # fmt: skip
  accuracy, promised = {}, {}
  for epsilon in lab.pick((3.0,), (1.0, 3.0, 10.0)):
    name, fields = f'song/privacy/{epsilon:g}', private | {'epsilon': epsilon}
    runs = lab.sweep(name, fields)
    accuracy[epsilon] = [run.final() for run in runs]
    promised[epsilon] = runs[0].row['epsilon']
  plain = {'algorithm': 'iterative_sketching', 'batch_order': 'replace'}
  runs = lab.sweep('song/privacy/none', base | plain)
  accuracy[math.inf] = [run.final() for run in runs]
  return accuracy, promised


def decentralised(lab: lab_lib.Lab) -> study.Report:
  """Tables over a graph: what every client has after flooding is the mean."""
  claims, seeds = [], {}
  graphs = lab.pick({'ring': 8}, {'ring': 8, 'grid': 16})
  for graph, population in graphs.items():
    base = {
      'population': population, 'cohort': population,
      'rounds': lab.pick(4, 20), 'eval_every': lab.pick(2, 5),
      'checkpoint_every': 20, 'client_lr': 0.1,
      'sketch': {'kind': 'block_cyclic', 'size': 128},
    }  # fmt: skip
    losses = []
    own = {'iterative_sketching': {}, 'decentralised': {'graph': graph}}
    for algorithm, options in own.items():
      fields = base | options | {'algorithm': algorithm}
      (run,) = lab.sweep(f'song/{graph}/{algorithm}', fields)
      losses.append(run.curve('test_loss')[1])
    central, spread = losses
    text = (
      f'{graph} of {population}: largest relative difference of the test '
      'loss to the central algorithm'
    )
    apart = float(np.abs(spread / central - 1).max())
    claims.append(study.Claim(text, apart, '<=', 1e-4))
    seeds[graph] = {'central': list(central), 'decentralised': list(spread)}
  return study.Report(claims, seeds)
