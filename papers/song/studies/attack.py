"""Attacks tables of growing size and measures the recovery: Song, section 7."""

import dataclasses

from fl_sketch.runs import figures
import numpy as np

from ...common import study, verdicts
from ...common.workspace import Workspace
from ..attacks import campaign, settings

_SHARES = (0.25, 0.5, 1.0, 1.5, 3.0, 10.0)
_NOISES = (0.01, 0.05, 0.5)
_CAPTION = (
  'Median relative error of what is recovered, with its interval; the line is '
  'at one number for each unknown.'
)


def recovery(ws: Workspace) -> study.Report:
  """Softmax regression on digits: 64 unknowns, 650 parameters."""
  unknowns = ws.pick(12, 64, 64)
  sizes = [round(share * unknowns) for share in ws.pick((0.5, 3.0), _SHARES)]
  victim = ws.pick(
    {'inputs': 12, 'outputs': 8, 'examples': 4},
    {'dataset': 'digits', 'model': 'linear', 'examples': 20},
    {'dataset': 'digits', 'model': 'linear', 'examples': 60},
  )
  c = settings.AttackConfig(
    **victim, sketches=('gaussian',), sizes=tuple(sizes),
    defended_size=sizes[-1], noises=ws.pick((0.5,), _NOISES), optimizer='lbfgs',
    steps=ws.pick(100, 2000), restarts=ws.pick(2, 4, 10), start_scale=0.3,
    success=1e-3,
  )  # fmt: skip
  ws.configs['song/attack'] = dataclasses.asdict(c)
  rows = campaign.run(c, ws.folder / 'runs' / 'song' / 'attack', ws.data_dir)
  plain = {r['size']: r for r in rows if r['defence'] == 'none' and r['size']}
  noisy = {r['strength']: r for r in rows if r['defence'] == 'noise'}
  claims = []
  for size, row in plain.items():
    text = f'b = {size / unknowns:.3g} m: median relative error'
    if size >= 1.5 * unknowns:
      claims.append(verdicts.of_medians(text, row['errors'], '<=', 1e-3))
    elif size <= 0.5 * unknowns:
      claims.append(verdicts.of_medians(text, row['errors'], '>=', 0.5))
  strongest = max(noisy)
  text = f'noise of {strongest:g} of the length: median relative error'
  errors = noisy[strongest]['errors']
  claims.append(verdicts.of_medians(text, errors, '>=', 0.5))
  return study.Report(
    claims,
    {f'b = {size}': row['errors'] for size, row in plain.items()}
    | {f'noise {s:g}': row['errors'] for s, row in noisy.items()},
    [_table(plain, noisy, unknowns)],
    [study.Picture(_CAPTION, [_panel(plain, unknowns)])],
    [
      'Gaussian tables, L-BFGS, known labels; noise beside tables of the '
      'largest size. At b = m itself nothing is claimed. Images of MNIST, 784 '
      'unknowns, are too many for these minutes: configs/mnist_attack.py of '
      'fl-sketch attack has them.'
    ],
  )


def _table(plain, noisy, unknowns):
  numbers = lambda row: [f'{row["median_error"]:.2g}', f'{row["success"]:.2f}']
  rows = [
    [f'{size}', f'{size / unknowns:.3g}', '', *numbers(row)]
    for size, row in plain.items()
  ]
  rows += [['', '', f'{s:g}', *numbers(row)] for s, row in noisy.items()]
  head = 'b', 'b / m', 'noise', 'median relative error', 'recovered to 0.1 %'
  return study.Table(f'{unknowns} unknowns', head, rows)


def _panel(plain, unknowns):
  claims = [
    verdicts.of_medians('', row['errors'], '<=', 0.0) for row in plain.values()
  ]
  values = np.array([(c.measured, c.low, c.high) for c in claims], float).T
  shares = np.array(list(plain)) / unknowns
  line = figures.Line('', shares, *values, cell=f'{values[0][-1]:.2g}')
  labels = 'numbers seen for each unknown', 'relative error'
  return figures.Panel(
    *labels, [line], x_scale='log', y_scale='log', x_mark=1.0
  )
