"""Chen et al.: what stored numbers of every seed say on the words of it."""

import itertools

import numpy as np
from papers import catalog
import pytest
from scipy import stats

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
FIGURES = ('S4-Fig1', 'S4-Fig2', 'S4-Fig3')


def values(study, method, field='test_accuracy'):
  """A number of every seed."""
  return np.array([run[field] for run in RESULTS[study]['seeds'][method]])


def above(first, second=0.0):
  """Whether paired seeds decide, at 5 % of two sides, that first is above."""
  test = stats.ttest_1samp(np.subtract(first, second), 0)
  return test.statistic > 0 and test.pvalue < 0.05


def sizes(study):
  """The methods by size of table, dense Adam last."""
  tables = [x for x in RESULTS[study]['seeds'] if x.startswith('safl')]
  return [*sorted(tables, key=lambda x: float(x[5:])), 'fedadam 1']


@pytest.mark.parametrize('share', ['0.01', '0.1'])
def test_one_bit_adam_is_ahead_of_safl(share):
  first = values('S4-Fig1', 'onebit_adam 1')
  assert above(first, values('S4-Fig1', f'safl {share}'))


def test_cocktail_sgd_is_ahead_in_figure_2():
  for share in ('0.01', '0.1'):
    first = values('S4-Fig2', f'cocktail_sgd {share}')
    assert above(first, values('S4-Fig2', f'safl {share}'))


def test_the_smallest_table_of_figure_1_is_the_worst():
  """In accuracy, and in training loss as well."""
  for less, more in itertools.pairwise(sizes('S4-Fig1')):
    assert above(values('S4-Fig1', more), values('S4-Fig1', less))
    losses = [values('S4-Fig1', x, 'train_loss') for x in (less, more)]
    assert above(*losses)


def test_larger_tables_of_figure_3_end_lower():
  for less, more in itertools.pairwise(sizes('S4-Fig3')):
    assert above(*(values('S4-Fig3', x, 'train_loss') for x in (less, more)))


def test_exponents_of_the_hessian_are_below_1():
  for exponents in RESULTS['S4-Fig4']['seeds']['exponent'].values():
    assert above(1, exponents)


def test_safl_receives_what_it_sends():
  """As many bytes, unlike MARINA, whose downlink is dense."""
  for study in FIGURES:
    for method in RESULTS[study]['seeds']:
      up = values(study, method, 'total_uplink_bytes')
      down = values(study, method, 'total_downlink_bytes')
      if method.startswith('safl'):
        np.testing.assert_array_equal(up, down)
      if method.startswith('marina'):
        assert (down > 5 * up).all()


def test_what_1_bit_adam_sends():
  """22.5 % of dense with its warm-up; CocktailSGD 1.2 % by its defaults."""
  sent, dense, ours = (
    values('S4-Fig1', x, 'total_uplink_bytes').mean()
    for x in ('onebit_adam 1', 'fedadam 1', 'safl 0.01')
  )
  assert round(sent / dense, 3) == 0.225
  assert round(sent / ours, 1) == 22.5
  assert RESULTS['S4-Tab1']['seeds']['CocktailSGD'] == 49


def test_settings_are_those_of_the_paper():
  """Five clients that all take part, label smoothing and weight decay."""
  for study in FIGURES:
    for config in RESULTS[study]['configs'].values():
      fields = ('population', 'cohort', 'label_smoothing', 'weight_decay')
      assert [config[x] for x in fields] == [5, 5, 0.1, 1e-4]
