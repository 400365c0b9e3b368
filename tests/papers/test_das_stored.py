"""Das et al.: what stored numbers of every seed say on the words of it."""

import numpy as np
from papers import catalog
from papers.common import verdicts

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
IMAGES = RESULTS['S1-Tab1']['seeds']['fashion_mnist']


def decided(values, relation, bound):
  """Whether every cell [..., seeds] keeps a bound."""
  cells = np.reshape(values, (-1, np.shape(values)[-1]))
  claim = verdicts.of_seeds('', cells, relation, bound)
  return claim.met and claim.p < 0.005


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
