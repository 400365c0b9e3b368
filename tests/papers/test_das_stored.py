"""Das et al.: what stored numbers of every seed say on the words of it."""

import numpy as np
from papers import catalog
from papers.common import verdicts

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
IMAGES = RESULTS['S1-Tab1']['seeds']['fashion_mnist']


def quadratics(study, name):
  """Of clipping and normalising: [algorithm, q, start, rate, C, draw]."""
  return np.array(RESULTS[study]['seeds'][name])


LOSS = quadratics('S1-Fig1', 'last loss above the minimum')
SIGNAL = quadratics('S1-Fig2', 'mean over the rounds')


def curves(study):
  """Means over the draws: [algorithm, panel, rate, point]."""
  panels = RESULTS[study]['pictures'][0]['panels']
  lines = [sorted(p['lines'], key=lambda x: x['label']) for p in panels]
  y = np.array([[x['y'] for x in panel] for panel in lines])
  return y.reshape(6, 2, 3, -1).swapaxes(0, 1)


def decided(values, relation, bound):
  """Whether every cell [..., seeds] keeps a bound."""
  cells = np.reshape(values, (-1, np.shape(values)[-1]))
  claim = verdicts.of_seeds('', cells, relation, bound)
  return claim.met and claim.p < 0.005


def test_normalising_ends_lower_in_figure_1_by_more_the_larger_c():
  """In all cells of C = 50 and 100 with q >= 1, and in the mean over rounds."""
  at_40, at_50, at_100 = np.moveaxis(LOSS[1, :2] / LOSS[0, :2], -2, 0)[1:]
  assert decided([at_50, at_100], '<=', 1)
  assert decided([at_40 - at_50, at_50 - at_100], '>=', 0)
  clip, normal = curves('S1-Fig1')[..., 1:]
  assert (normal < clip).all()


def test_normalising_is_level_at_the_best_c_and_rate():
  """In three of the four cells with q >= 1."""
  level = []
  for cell in LOSS[:, :2].reshape(2, 4, -1, 20).swapaxes(0, 1):
    clip, normal = (x[x.mean(-1).argmin()] for x in cell)
    level.append(bool(np.allclose(normal / clip, 1, atol=1e-4)))
  assert level == [False, True, True, True]


def test_the_signal_is_larger_in_all_cells_of_figure_2():
  at_40, at_50, at_100 = np.moveaxis(SIGNAL[1] / SIGNAL[0], -2, 0)[1:]
  assert decided([at_40, at_50, at_100], '>=', 1)
  assert decided([at_50 - at_40, at_100 - at_50], '>=', 0)
  clip, normal = curves('S1-Fig2')
  assert (normal > 1.01 * clip).all()


def test_table_1_of_fashion_mnist_has_other_levels_and_gains():
  """Levels, the gain at epsilon 5, and what clipping loses from 5 to 1.5."""
  for kind in ('formula', 'calibrated'):
    at = {
      (name, epsilon): np.array(IMAGES[f'{kind} {epsilon} dp_{name}']['%'])
      for name in ('fedavg', 'normfedavg')
      for epsilon in (5, 1.5)
    }
    for cell, printed in zip(at, (75.59, 56.90, 77.72, 57.80), strict=True):
      assert decided(at[cell], '>=', printed + 4)
    assert decided(at['normfedavg', 5] - at['fedavg', 5], '<=', 2.13)
    assert decided(at['fedavg', 5] - at['fedavg', 1.5], '<=', 18.69)
