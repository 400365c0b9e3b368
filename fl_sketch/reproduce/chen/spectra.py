"""Figures 4 and 5 of Chen et al.: what the Hessian looks like in training.

Chen, Li and Banerjee, arXiv:2411.06770.
"""

from fl_sketch.reproduce import lab as lab_lib, study
from fl_sketch.theory.curvature import during_training, spectrum_report
from fl_sketch.utils import markdown
import numpy as np


def power_law(lab: lab_lib.Lab) -> study.Report:
  """The largest eigenvalues fall as a power of their rank."""
  rows = _spectra(lab)
  # No law, NaN, is no small exponent.
  exponents = {
    row['round']: np.float64(row['exponent'] or np.nan) for row in rows
  }
  r_squared = [np.float64(row['r_squared'] or np.nan) for row in rows]
  top = lab.pick(5, 50, 50)
  claims = [
    study.Claim(
      f'least R^2 of log eigenvalue over log rank, {top} largest, all spectra',
      float(np.min(r_squared)), '>=', 0.95,
    ),
    study.Claim(
      'exponent of the power law at the start',
      float(exponents.pop(0)), '>=', 0.7,
    ),
    study.Claim(
      'least exponent of the power law, all spectra after the start',
      float(np.min(list(exponents.values()))), '>=', 0.7,
    ),
  ]  # fmt: skip
  return _report(lab, rows, claims)


def densities(lab: lab_lib.Lab) -> study.Report:
  """Nearly all eigenvalues are near zero: the intrinsic dimension is small."""
  rows = _spectra(lab)
  claims = [
    study.Claim(
      'least share of eigenvalues below a hundredth of the largest, of all '
      'spectra', min(row['near_zero'] for row in rows), '>=', 0.95,
    ),
    study.Claim(
      'largest intrinsic dimension over d, of all spectra',
      max(row['intrinsic_dimension'] / row['dimension'] for row in rows),
      '<=', 0.02,
    ),
  ]  # fmt: skip
  return _report(lab, rows, claims)


def _spectra(lab: lab_lib.Lab) -> list[spectrum_report.Row]:
  """One run and its spectra, for both figures."""
  fields = {
    'population': 50, 'cohort': 25, 'local_steps': 5, 'batch_size': 32,
    'client_lr': 0.05,
  } | lab.pick(
    {'dataset': 'digits', 'widths': (8,), 'rounds': 2, 'eval_every': 2},
    {'dataset': 'mnist', 'model': 'lenet5', 'rounds': 100, 'eval_every': 50},
    {
      'dataset': 'cifar10', 'model': 'vit_small', 'model_options': {'patch': 4},
      'algorithm': 'fedavg', 'server_optimizer': 'adam', 'server_lr': 0.001,
      'rounds': 600, 'eval_every': 100,
    },
  )  # fmt: skip
  options = lab.pick(
    during_training.Options(20, 2, 5, 100),
    during_training.Options(128, 2, 50, 500),
    during_training.Options(80, 3, 50, 1000),
  )
  lab.played['spectra'] = fields | options._asdict()
  return during_training.run(
    fields,
    str(lab.folder / 'runs' / 'spectra'),
    every=fields['eval_every'],
    options=options,
    data_dir=lab.data_dir,
    progress=lab.progress,
  )


def _report(lab, rows, claims) -> study.Report:
  head, *cells = markdown.cells(spectrum_report.table(rows))
  model = lab.pick(
    'an MLP on digits', 'LeNet-5 on MNIST', 'ViT-Small on CIFAR-10'
  )
  kept = ('round', 'lambda_max', 'trace', 'intrinsic_dimension', 'near_zero')
  caption = (
    f'Densities of the eigenvalues of {model} over training, and the '
    'largest by rank with their power laws.'
  )
  note = (
    'Stochastic Lanczos quadrature. The paper has ViT-Small every five '
    'epochs for Figure 5, and quotes Figure 4.'
  )
  return study.Report(
    claims,
    {f'round {row["round"]}': {k: row[k] for k in kept} for row in rows},
    [study.Table(f'The Hessian of {model}, FedAvg', head, cells)],
    [study.Picture(caption, spectrum_report.draw(rows))],
    [note],
  )
