"""Chen et al.: what stored numbers of every seed say on the words of it."""

import itertools

import numpy as np
from papers import catalog
from scipy import stats

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
FIGURES = ('S4-Fig1', 'S4-Fig2')


def values(study, method, field='test_accuracy'):
  """A number of every seed."""
  return np.array([run[field] for run in RESULTS[study]['seeds'][method]])


def above(first, second):
  """Whether paired seeds decide, at 5 % of two sides, that first is above."""
  test = stats.ttest_1samp(np.subtract(first, second), 0)
  return test.statistic > 0 and test.pvalue < 0.05


def steps(study, field='test_accuracy'):
  """Pairs of tables of SAFL, each with the next larger, dense Adam last."""
  tables = [x for x in RESULTS[study]['seeds'] if x.startswith('safl')]
  ordered = [*sorted(tables, key=lambda x: float(x[5:])), 'fedadam 1']
  return itertools.pairwise(values(study, x, field) for x in ordered)


def test_one_bit_adam_is_ahead_of_safl():
  """Catches a row of Figure 1 without the baseline that is ahead."""
  first = values('S4-Fig1', 'onebit_adam 1')
  assert above(first, values('S4-Fig1', 'safl 0.01'))
  assert above(first, values('S4-Fig1', 'safl 0.1'))


def test_cocktail_sgd_is_ahead_in_figure_2():
  """Catches a row of Figure 2 that calls SAFL the best."""
  for share in ('0.01', '0.1'):
    first = values('S4-Fig2', f'cocktail_sgd {share}')
    assert above(first, values('S4-Fig2', f'safl {share}'))


def test_the_smallest_table_of_figure_1_is_the_worst():
  """In accuracy, and in training loss as well."""
  assert all(above(more, less) for less, more in steps('S4-Fig1'))
  assert all(above(*pair) for pair in steps('S4-Fig1', 'train_loss'))


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
  for study in FIGURES:
    run = study, 'safl 0.01'
    np.testing.assert_array_equal(up(*run), down(*run))
    marina = study, 'marina 0.01'
    assert (down(*marina) > 50 * up(*marina)).all()
    sent = up(study, 'onebit_adam 1')
    np.testing.assert_allclose(sent / up(study, 'fedadam 1'), 0.225, atol=5e-4)
    np.testing.assert_allclose(sent / up(*run), 22.5, atol=0.05)
  assert RESULTS['S4-Tab1']['seeds']['CocktailSGD'] == 49


def test_settings_are_those_of_the_paper():
  """Five clients that all take part, label smoothing and weight decay."""
  fields = ('population', 'cohort', 'label_smoothing', 'weight_decay')
  for study in FIGURES:
    for config in RESULTS[study]['configs'].values():
      assert [config[x] for x in fields] == [5, 5, 0.1, 1e-4]
