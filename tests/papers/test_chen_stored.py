"""Chen et al.: what stored numbers of every seed say on the words of it."""

import numpy as np
from papers import catalog
from scipy import stats

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
SHARES = {'S4-ResNet': 0.01, 'S4-Fig3': 0.02, 'S4-ViT': 0.01}  # of d


def values(study, method, field='test_accuracy'):
  """A number of every seed."""
  return np.array([run[field] for run in RESULTS[study]['seeds'][method]])


def above(first, second):
  """Whether paired seeds decide, at 5 % of two sides, that first is above."""
  test = stats.ttest_1samp(np.subtract(first, second), 0)
  return test.statistic > 0 and test.pvalue < 0.05


def test_figure_1_has_curves():
  """Catches a figure of points where the paper has curves of every method."""
  panel, *_ = RESULTS['S4-ResNet']['pictures'][0]['panels']
  curves = {line['label'] for line in panel['lines'] if len(line['x']) > 2}
  methods = {name.split()[0] for name in RESULTS['S4-ResNet']['seeds']}
  assert {label.split(',')[0] for label in curves} == methods


def test_exponents_of_the_hessian_are_below_1():
  """Catches a row that calls the intrinsic dimension a constant."""
  exponents = RESULTS['S4-Fig4']['seeds']['exponent'].values()
  assert all(above(1, x) for x in exponents)


def test_bytes_of_every_method():
  """SAFL down as up, 1-bit Adam with its warm-up, CocktailSGD by its defaults.
  MARINA is billed a dense downlink.
  """
  up, down = (
    lambda *run, way=way: values(*run, f'total_{way}link_bytes')
    for way in ('up', 'down')
  )
  for study, share in SHARES.items():
    run = study, f'safl {share}'
    np.testing.assert_array_equal(up(*run), down(*run))
    dense = study, 'fedadam 1'
    marina = study, f'marina {share}'
    np.testing.assert_array_equal(down(*marina), down(*dense))
    sent = up(study, 'onebit_adam 1')
    np.testing.assert_allclose(sent / up(*dense), 0.225, atol=5e-4)
    np.testing.assert_allclose(share * sent / up(*run), 0.225, atol=5e-4)
  assert RESULTS['S4-Tab1']['seeds']['CocktailSGD'] == 49


def test_settings_are_those_of_the_paper():
  """Five clients that all take part, label smoothing and weight decay."""
  fields = ('population', 'cohort', 'label_smoothing', 'weight_decay')
  for study in SHARES:
    for config in RESULTS[study]['configs'].values():
      assert [config[x] for x in fields] == [5, 5, 0.1, 1e-4]
