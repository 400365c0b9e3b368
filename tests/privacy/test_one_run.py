"""Laws of one-run audits: mu, chances, claims, power; alarms below 1e-6."""

import audit_games
from fl_sketch.accounting import gaussian, profiles
from fl_sketch.privacy.auditing import one_run
import numpy as np
import pytest
from scipy import stats


@pytest.mark.parametrize(
  ('right', 'guesses', 'canaries'), [(45, 50, 50), (240, 250, 1000)]
)
def test_the_bound_by_f_dp_is_that_of_jax_privacy(right, guesses, canaries):
  """Catches a recursion that is wrong where no linear program is solved."""
  reason = 'needs jax_privacy, a tool of the tests'
  theirs = pytest.importorskip('jax_privacy.auditing', reason=reason)
  rest, wrong = canaries - guesses, guesses - right
  present = np.repeat([1.0, 0.0], [right, rest // 2])
  absent = np.repeat([1.0, 0.0], [wrong, rest - rest // 2])
  auditor = theirs.CanaryScoreAuditor(present, absent)
  mu = one_run.least_mu(right, guesses, canaries, 0.01)
  for delta in 1e-5, 1e-2:
    at = {'threshold_strategy': theirs.Explicit(0.5)}
    want = auditor.epsilon_one_run_fdp(0.01, delta, **at)
    assert gaussian.epsilon_at(mu, delta) == pytest.approx(want, rel=1e-4)


def test_gaussian_mechanisms_are_within_the_bounds():
  """Catches a bound below the exact law of guesses, each right by itself."""
  mu = 1.0
  accuracy, curve = float(stats.norm.cdf(mu / 2)), one_run.gaussian_curve(mu)
  for m in 1, 2, 7, 40:
    for right in {1, m // 2 + 1, m}:
      exact = stats.binom(m, accuracy).pmf(range(right, m + 1)).sum()
      assert not one_run.refuted(exact * (1 - 1e-9), right, m, m, curve)
      independent = one_run.independent_chance(right, m, accuracy)
      assert independent == pytest.approx(exact, rel=1e-9)
  assert one_run.refuted(accuracy * (1 + 1e-5), 1, 1, 1, curve)


def test_f_dp_allows_a_mechanism_that_fails_for_all_at_once():
  """Catches a binomial law where only f-DP is supposed."""
  share = 0.05  # of the runs in which every coin is shown
  curve = lambda h: np.where(h > 1, np.inf, np.maximum(h - share, 0))
  exact = share + (1 - share) * 0.5**20
  assert not one_run.refuted(exact * (1 - 1e-9), 20, 20, 20, curve)
  assert one_run.independent_chance(20, 20, (1 + share) / 2) < exact / 1e3


def test_bounds_are_above_the_truth_no_more_often_than_they_say():
  """Catches a bound that is not valid at its confidence, or vacuous."""
  mu, significance, runs, m = 2.0, 0.2, 1000, 60
  rng, sure, every = np.random.default_rng(3), [], []
  for _ in range(runs):
    coins = rng.random(m) < 0.5
    scores = rng.normal(size=m) + mu * (coins - 0.5)
    sure.append(one_run.sure_right(scores, coins, 20))
    every.append(one_run.all_right(scores, coins))
  bounds = {n: one_run.least_mu(n, 20, m, significance) for n in set(sure)}
  above = sum(bounds[n] > mu for n in sure)
  bounds = {n: one_run.independent_mu(n, m, significance) for n in set(every)}
  exactly = sum(bounds[n] > mu for n in every)
  assert above <= stats.binom.isf(1e-7, runs, significance)
  assert exactly <= stats.binom.isf(1e-7, runs, significance)
  # A step of R is about a tenth of its chance; much less would waste power.
  assert exactly > 0.1 * runs


def test_a_claim_is_that_of_its_mechanism():
  """Catches a claim that is stronger than the statement, or much weaker."""
  mechanism = audit_games.claim(4.0, 16)
  claim = one_run.claim_of(mechanism, delta=1e-4)
  assert claim.mu == pytest.approx(1.0)
  assert claim.accuracy == pytest.approx(stats.norm.cdf(0.5))
  deltas = np.array([gaussian.delta_at(1.0, e) for e in one_run.EPSILONS])
  chances = np.array([1e-5, 1e-3, 0.1, 0.5, 0.9, 0.999])
  exact, tangents = claim.curve(chances), one_run.curve_of(deltas)(chances)
  assert (tangents <= exact * (1 + 1e-9)).all()
  assert (tangents >= 0.9 * exact).all()


def test_a_sampled_claim_is_below_full_participation():
  """Catches a claim without sampling, or one below the mechanism's curve."""
  sampled = audit_games.claim(1.0, 4, q=0.25)
  claim = one_run.claim_of(sampled, delta=1e-4)
  assert claim.accuracy < stats.norm.cdf(claim.mu / 2) < stats.norm.cdf(1.0)
  curve = profiles.profile(sampled)
  for epsilon in 0.5, 1.0, 2.0:
    assert gaussian.delta_at(claim.mu, epsilon) >= curve.delta(epsilon) - 1e-4
