"""Section 6 of Song et al. on steps whose composition is known exactly."""

import functools
import math

import numpy as np
from papers.song.statements import privacy
import pytest
from scipy import stats


def delta_of(epsilon_hat, steps, epsilon):
  """Of so many randomized responses, by their binomial privacy loss."""
  true = 1 / (1 + math.exp(-epsilon_hat))
  hits = np.arange(steps + 1)
  loss = epsilon_hat * (2 * hits - steps)
  chance = stats.binom.pmf(hits, steps, true)
  return float((chance * np.maximum(-np.expm1(epsilon - loss), 0)).sum())


@pytest.mark.covers('S0-6.1=H9', 'S0-6.2=H11')
@pytest.mark.parametrize('constant', [1, 3])
def test_no_constant_mends_theorems_6_1_and_6_2(constant):
  """Steps of epsilon 0.09 < 1 / sqrt(K), and 10^-12 more than they need."""
  for steps, rounds in ((100, 1), (5, 20)):
    of = functools.partial(privacy.total_epsilon, 0.09, 1e-12, steps, rounds)
    claimed, delta = of(form='printed')
    assert delta_of(0.09, 100, constant * claimed) > 1e4 * delta
    enough, slack = of(delta_slack=1e-6)
    assert delta_of(0.09, 100, enough) <= slack
  one = functools.partial(privacy.local_epsilon, 0.09, 1e-12, 100)
  assert one(form='printed') == pytest.approx((10 * 0.09, 100 * 1e-12))
  slack = {'delta_slack': 1e-6}
  assert one(**slack) == privacy.composition(0.09, 1e-12, 100, **slack)
