"""Das et al.: what the stored numbers of every seed say on the paper's words.

As of their claims, p-values are two-sided; `DECIDED` is what the page asks for.
"""

import itertools

import numpy as np
from papers import catalog
from papers.common import verdicts
import pytest

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
DECIDED = 0.0066
QUADRATICS = {
  'loss': ('S1-Fig1', 'last loss above the minimum'),
  'signal': ('S1-Fig2', 'mean over the rounds'),
}


def ratio(quantity):
  """Normalising over clipping, [q, start, rate, C, draw]."""
  study, name = QUADRATICS[quantity]
  clip, normal = np.array(RESULTS[study]['seeds'][name])
  return normal / clip


def holds(values, relation, bound):
  """Whether all cells [..., draws] keep a bound, as `verdicts` decides it."""
  claim = verdicts.of_seeds('', np.reshape(values, (-1, 20)), relation, bound)
  return claim.met and claim.p < DECIDED


def curves(study):
  """Means over the draws, clipping and normalising: [6 panels, 3, points]."""
  panels = RESULTS[study]['pictures'][0]['panels']
  lines = [[np.array(x['y']) for x in p['lines']] for p in panels]
  labels = [x['label'][:4] for x in panels[0]['lines']]
  clip = np.array([i for i, x in enumerate(labels) if x == 'clip'])
  others = np.setdiff1d(np.arange(6), clip)
  return np.array(lines)[:, clip], np.array(lines)[:, others]


def test_normalising_ends_lower_in_figure_1_by_more_the_larger_c():
  """In 24 cells of C = 50, 100 and q >= 1; clipping is ahead at q = 0.01."""
  loss = ratio('loss')[:2]
  assert holds(loss[..., 2:, :], '<=', 1)
  assert holds(loss[..., 1, :] - loss[..., 2, :], '>=', 0)
  assert holds(loss[..., 2, :] - loss[..., 3, :], '>=', 0)
  clip, normal = curves('S1-Fig1')
  assert (normal[..., 1:] < clip[..., 1:]).all()
  assert (normal.mean(-1) < clip.mean(-1)).all()


def test_normalising_is_level_at_the_best_c_and_rate():
  """In three of the four cells with q >= 1."""
  study, name = QUADRATICS['loss']
  loss, level = np.array(RESULTS[study]['seeds'][name]), []
  for q, start in itertools.product((0, 1), (0, 1)):
    cells = loss[:, q, start].reshape(2, -1, 20)
    clip, normal = (x[x.mean(-1).argmin()] for x in cells)
    level.append(bool(np.allclose(normal / clip, 1, atol=1e-4)))
  assert level == [False, True, True, True]


def test_the_signal_is_larger_in_all_cells_of_figure_2():
  signal = ratio('signal')
  assert holds(signal[..., 1:, :], '>=', 1)
  assert holds(signal[..., 2, :] - signal[..., 1, :], '>=', 0)
  assert holds(signal[..., 3, :] - signal[..., 2, :], '>=', 0)
  clip, normal = curves('S1-Fig2')
  assert normal.shape == (6, 3, 50)
  assert (normal / clip).min() > 1.01


def accuracies(dataset, epsilon, algorithm, kind='calibrated'):
  cell = f'{kind} {epsilon} dp_{algorithm}'
  return np.array(RESULTS['S1-Tab1']['seeds'][dataset][cell]['%'])


@pytest.mark.parametrize('kind', ['formula', 'calibrated'])
def test_table_1_of_fashion_mnist_has_other_levels_and_gains(kind):
  """Levels, gain at epsilon 5 and loss of clipping from 5 to 1.5, printed."""
  at = lambda *cell: accuracies('fashion_mnist', *cell, kind)
  gain = at(5, 'normfedavg') - at(5, 'fedavg')
  lost = at(5, 'fedavg') - at(1.5, 'fedavg')
  for values, relation, bound in (
    (at(5, 'fedavg'), '>=', 75.59 + 5), (at(5, 'normfedavg'), '>=', 77.72 + 4),
    (at(1.5, 'fedavg'), '>=', 56.90 + 20),
    (at(1.5, 'normfedavg'), '>=', 57.80 + 20),
    (gain, '<=', 2.13), (lost, '<=', 18.69),
  ):  # fmt: skip
    claim = verdicts.of_seeds('', values, relation, bound)
    assert claim.met
    assert claim.p < DECIDED
