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


@pytest.mark.covers('S0-H8')
@pytest.mark.parametrize('batch', [1, 4])
def test_lemma_h_8_bounds_no_sensitivity(batch):
  """Catches a norm for a sensitivity: what one clipped sample moves at most."""
  lipschitz, rng = 0.5, np.random.default_rng(0)
  g = rng.standard_normal((500, 8))  # of the sample that goes
  g *= lipschitz / np.linalg.norm(g, axis=-1, keepdims=True)
  of = functools.partial(privacy.mean_sensitivity, lipschitz, batch)
  # The farthest of this length is the antipode.
  for relation, other in (('replace_one', -g), ('add_remove', 0 * g)):
    moved = np.linalg.norm((g - other) / batch, axis=-1)
    np.testing.assert_allclose(moved, of(relation=relation))
  assert (of() > of(form='printed')) == (batch == 1)
  # f_c = 0 is the mean of x and -x: without the one it has the slope 1 / 2.
  assert abs(np.mean([1, -1]) - 1 / 2) >= of(form='printed')
