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
  g = rng.standard_normal((500, batch, 8))
  g *= lipschitz / np.linalg.norm(g, axis=-1, keepdims=True)
  away = {'replace_one': g.copy(), 'add_remove': g[:, 1:]}
  away['replace_one'][:, 0] *= -1  # the farthest of this length
  printed = privacy.mean_sensitivity(lipschitz, batch, form='printed')
  for relation, other in away.items():
    moved = np.linalg.norm((g.sum(1) - other.sum(1)) / batch, axis=-1)
    bound = privacy.mean_sensitivity(lipschitz, batch, relation=relation)
    np.testing.assert_allclose(moved, bound)
  assert (privacy.mean_sensitivity(lipschitz, batch) > printed) == (batch == 1)
  assert np.linalg.norm(g.mean(1), axis=-1).max() < printed * (1 + 1e-12)
  # A mean of no slope at all, of samples that are long: it moves by 10 / 2.
  assert abs(np.mean([10.0, -10.0]) - 10.0 / 2) > printed
