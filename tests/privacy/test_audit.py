"""Audits of what is true (at 1e-6 each), and of what is broken (at 0.05)."""

import dataclasses

from audit_games import NEVER, algorithm, claim, game_of, play
from fl_sketch.accounting import gaussian
from fl_sketch.privacy.auditing import audit
from fl_sketch.runs import audit as config_audit
from fl_sketch.runs.config import Config
import numpy as np
import pytest


def gaussians(seed, count, shift=1.0):
  rng = np.random.default_rng(seed)
  return rng.normal(shift, 1, count), rng.normal(0, 1, count)


@pytest.mark.parametrize(('shift', 'delta'), [(0.5, 0.01), (2.0, 0.1)])
def test_a_bound_is_below_the_epsilon_of_gaussians_and_near_it(shift, delta):
  exact = gaussian.epsilon_at(shift, delta)
  for seed in range(5):
    scores = gaussians(seed, 5_000, shift)
    safe = audit.epsilon_lower_bound(*scores, delta=delta, significance=NEVER)
    assert safe <= exact
    # More than five standard deviations of such a bound below its mean.
    scores = gaussians(seed, 200_000, shift)
    near = audit.epsilon_lower_bound(*scores, delta=delta)
    assert near >= 0.6 * exact - 0.05


def test_a_bound_holds_for_scores_with_atoms():
  rng = np.random.default_rng(0)
  p, delta = 0.8, 0.1  # randomised response
  exact = np.log((p - delta) / (1 - p))
  scores = [(rng.random(100_000) < chance) * 1.0 for chance in (p, 1 - p)]
  safe = audit.epsilon_lower_bound(*scores, delta=delta, significance=NEVER)
  assert exact - 0.1 < safe <= exact
  same = np.zeros(1000)
  assert audit.epsilon_lower_bound(same, same, delta=delta) == 0


@pytest.mark.nightly
def test_the_choice_of_an_event_costs_no_validity():
  # Equal worlds: any bound above 0 is a false alarm, and at most half of 400
  # may be; 250 has a chance below 1e-6. Chosen on the same scores it is > 390.
  alarms = 0
  for seed in range(400):
    scores = gaussians(seed, 400, shift=0.0)
    options = {'delta': 1e-9, 'significance': 0.5}
    alarms += audit.epsilon_lower_bound(*scores, **options) > 0
  assert 0 < alarms < 250


@pytest.mark.parametrize('shift', [1.0, -1.0])
def test_bounds_at_a_threshold_are_those_of_jax_privacy(shift):
  """Catches a confidence bound on the wrong side, or of another level."""
  reason = 'needs jax_privacy, a tool of the tests'
  theirs = pytest.importorskip('jax_privacy.auditing', reason=reason)
  worlds, largest = [np.sort(x) for x in gaussians(0, 500, shift)], 0
  for threshold in -1.0, 0.3, 2.0:
    ours = audit._bounds(worlds, np.array([threshold]), 0.05, 0.02)[:, :, 0]
    at = {'threshold_strategy': theirs.Explicit(threshold), 'one_sided': False}
    # Above it in one order of the worlds, and below it in the other.
    for pair, bounds in (worlds, ours), (worlds[::-1], ours[:, ::-1]):
      auditor = theirs.CanaryScoreAuditor(*pair)
      want = auditor.epsilon_clopper_pearson(0.02, 0.05, **at)
      assert bounds.diagonal().max() == pytest.approx(want, abs=1e-12)
      largest = max(largest, want)
  assert largest > 0.5


def test_what_bounds_nothing_is_refused():
  """Catches a bound that NaN or too few runs make look like none."""
  for scores in np.full(9, np.nan), np.zeros(7):
    with pytest.raises(ValueError, match='in_scores'):
      audit.epsilon_lower_bound(scores, np.zeros(9), delta=0.1)


def test_a_report_says_what_it_found():
  """Catches a significance that is not shared, and a verdict of NaN."""
  scores = {'low': gaussians(0, 20_000, 0.5), 'high': gaussians(1, 20_000, 1.5)}
  fine = audit.assess({'low': scores['low']}, claim(), significance=NEVER)
  broken = audit.assess(scores, claim())
  assert broken.violated
  assert not fine.violated
  exact = [gaussian.epsilon_at(1.0, delta) for delta in audit.DELTAS]
  assert broken.theory == pytest.approx(exact)
  # One of four comparisons has a quarter of the significance.
  quarter = {'delta': 0.1, 'significance': 0.05 / 4}
  alone = audit.epsilon_lower_bound(*scores['low'], **quarter)
  assert broken.measured['low'][0] == alone
  assert fine._replace(theory=(np.nan, np.nan)).violated


def test_an_audit_without_noise_is_refused():
  """Catches an audit that divides by no noise."""
  claimed = claim()
  silent = dataclasses.replace(claimed, noise_multiplier=0.0)
  bad = game_of(algorithm('dp_fedavg', claimed), silent)
  with pytest.raises(ValueError, match='noise_multiplier'):
    play(bad, 0.05)
  with pytest.raises(ValueError, match='noise_multiplier'):
    config_audit.audit_config(Config())
