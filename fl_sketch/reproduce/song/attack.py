"""What is recovered from tables of more and more numbers: Song, section 7."""

import dataclasses

from fl_sketch import reporting
from fl_sketch.attacks import campaign, settings
from fl_sketch.reproduce import lab as lab_lib, study
import numpy as np

_SHARES = (0.25, 0.5, 1.0, 1.5, 3.0, 10.0)
_NOISES = (0.01, 0.05, 0.5)


def recovery(lab: lab_lib.Lab) -> study.Report:
  """Softmax regression on digits: 64 unknowns, 650 parameters."""
  unknowns = lab.pick(12, 64, 64)
  sizes = [
    round(share * unknowns) for share in lab.pick((0.5, 3.0), _SHARES, _SHARES)
  ]
  victim = lab.pick(
    {'inputs': 12, 'outputs': 8, 'examples': 4},
    {'dataset': 'digits', 'model': 'linear', 'examples': 20},
    {'dataset': 'digits', 'model': 'linear', 'examples': 60},
  )
  c = settings.AttackConfig(
    **victim,
    sketches=('gaussian',),
    sizes=tuple(sizes),
    defended_size=sizes[-1],
    noises=lab.pick((0.5,), _NOISES, _NOISES),
    optimizer='lbfgs',
    steps=lab.pick(100, 2000, 2000),
    restarts=lab.pick(2, 4, 10),
    start_scale=0.3,
    success=1e-3,
  )
  lab.played['song/attack'] = dataclasses.asdict(c)
  rows = campaign.run(c, lab.folder / 'runs' / 'song' / 'attack', lab.data_dir)
  plain = {r['size']: r for r in rows if r['defence'] == 'none' and r['size']}
  noisy = {r['strength']: r for r in rows if r['defence'] == 'noise'}
  claims = [_claim(size / unknowns, row) for size, row in plain.items()]
  strongest = max(noisy)
  claims.append(
    study.Claim(
      f'noise of {strongest:g} of the length: median relative error',
      noisy[strongest]['median_error'],
      '>=',
      0.5,
    )
  )
  return study.Report(
    [claim for claim in claims if claim is not None],
    {f'b = {size}': row['median_error'] for size, row in plain.items()}
    | {f'noise {s:g}': row['median_error'] for s, row in noisy.items()},
    [_table(plain, noisy, unknowns)],
    [
      study.drawn(
        'Median relative error of what is recovered.', _draw(plain, unknowns)
      )
    ],
    [
      'Gaussian tables, L-BFGS, known labels; noise beside tables of the '
      'largest size. At b = m itself nothing is claimed. Images of MNIST, 784 '
      'unknowns, are too many for these minutes: configs/mnist_attack.py of '
      'launch.attack has them.'
    ],
  )


def _claim(share, row):
  """What must hold at b = share x m; nothing near m itself."""
  error = row['median_error']
  text = f'b = {share:.3g} m: median relative error'
  if share >= 1.5:
    return study.Claim(text, error, '<=', 1e-3)
  if share <= 0.5:
    return study.Claim(text, error, '>=', 0.5)
  return None


def _table(plain, noisy, unknowns):
  cells = [
    [f'{size}', f'{size / unknowns:.3g}', '', row]
    for size, row in plain.items()
  ] + [['', '', f'{strength:g}', row] for strength, row in noisy.items()]
  rows = [
    [*left, f'{row["median_error"]:.2g}', f'{row["success"]:.2f}']
    for *left, row in cells
  ]
  head = 'b', 'b / m', 'noise', 'median relative error', 'recovered to 0.1 %'
  return study.Table(f'{unknowns} unknowns', head, rows)


def _draw(plain, unknowns):
  axes = reporting.new_axes('numbers seen for each unknown', 'relative error')
  shares = np.array(list(plain)) / unknowns
  errors = [row['median_error'] for row in plain.values()]
  axes.loglog(shares, errors, marker='o', **reporting.look(0))
  axes.axvline(1, color='0.5', linewidth=1)
  reporting.plain_ticks(axes.xaxis)
  return axes
