"""Laws of audits in one run, and audits of real runs; alarms below 1e-6."""

import audit_games
import breaks
import cases
from fl_sketch import algorithms
from fl_sketch.accounting import gaussian, profiles
from fl_sketch.privacy.auditing import one_run
from fl_sketch.rounds import algorithm as rounds_algorithm, keys as keys_lib
from fl_sketch.runs import canary_clients, config, one_run_audit
import jax
import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.usefixtures('unproven')
DIGITS = breaks.SAFL | breaks.DENSE
COUNT = {'kind': 'count_sketch', 'rows': 1, 'cols': 600}
COUNT = {'sketch': COUNT, 'options': {'k': 5}}
BLOCKS = {k: breaks.SAFL[k] for k in breaks.DENSE}


def prepared(canaries=500, **fields):
  c = config.Config.from_mapping(DIGITS | fields)
  return one_run_audit.prepare(c, canaries=canaries)


@pytest.mark.parametrize(('name', 'fields'), [
  ('canaries', {'canaries': 499}),
  ('noise_multiplier', {'noise_multiplier': 0.0}),
  ('sampling', {'sampling': 'cyclic', 'cohort': 30}),
  ('before_sketch', BLOCKS | {'before_sketch': True}),
  ('algorithm', COUNT | {'algorithm': 'fedsketch_heaprix'}),
])  # fmt: skip
def test_what_cannot_be_audited_is_refused(name, fields):
  """Catches an audit that cannot find anything, or accuses what is right."""
  with pytest.raises(ValueError, match=name):
    prepared(**fields)


def test_a_canary_sends_its_own_whatever_local_work_draws_with():
  """Catches local work of the keys of a round that has no canary's update."""
  algorithm = algorithms.make('decomfl', cases.loss_fn, local_steps=2)(cases.HP)
  keys = keys_lib.round_keys(cases.KEY, 0)
  batches = jax.tree.map(lambda x: x[0], cases.cohort(0, 0).batches)
  hyper = canary_clients._Hyper(cases.HP, keys)
  with_canaries = canary_clients._with_canaries(algorithm, hyper)
  given = keys_lib.for_client(keys, 3), None
  played = lambda local, batches: rounds_algorithm.run_first_round(
    local, cases.PARAMS, batches, *given
  )[0]
  of_client = played(algorithm.local, batches)
  entry = {'data': batches, 'sign': 1.0}
  same, canary = (
    played(with_canaries.local, entry | {'place': place}) for place in (-1, 4)
  )
  np.testing.assert_array_equal(same, of_client)
  assert np.flatnonzero(canary).tolist() == [4]


@pytest.mark.parametrize(('adjacency', 'weight', 'times'), [
  ('add_or_remove_one', 0, 0), ('zero_out', 1, 0), ('replace_one', 1, -1),
])  # fmt: skip
def test_a_left_out_canary_is_as_the_adjacency_has_it(adjacency, weight, times):
  """Catches an audit of another pair of worlds than that of the claim."""
  c = config.Config.from_mapping(DIGITS | {'adjacency': adjacency})
  exp = canary_clients.enlarged(c, None, 8)
  coins = np.arange(8) % 2 == 0
  sent = canary_clients.signals(np.random.default_rng(9), 0, 8, 650)
  drawn = canary_clients.cohort_of(exp, 0, 7, sent, coins)
  own, added = slice(60), slice(60, 68)
  assert drawn.ids.tolist() == list(range(68))
  assert (drawn.weight[own] == 1).all()
  assert (drawn.batches['place'][own] == -1).all()
  assert drawn.weight[added].tolist() == np.where(coins, 1, weight).tolist()
  assert drawn.batches['place'][added].tolist() == sent.place.tolist()
  signs = sent.sign * np.where(coins, 1, times)
  assert drawn.batches['sign'][added].tolist() == signs.tolist()
  assert len(set(sent.place.tolist())) == 8


@pytest.mark.nightly
def test_the_population_grows_and_its_statement_with_it():
  """Catches a statement of the config without its canaries, or other data."""
  fields = {'sampling': 'poisson', 'cohort': 15, 'max_cohort': 40}
  fields |= {'client_holdout': 0.1}
  c = config.Config.from_mapping(DIGITS | fields)
  exp = canary_clients.enlarged(c, None, 100)
  assert exp.guarantee is not None
  mechanism = exp.guarantee.mechanism
  assert mechanism.population == exp.partition.population == 160
  assert mechanism.sampling_probability == 15 / 60
  assert mechanism.max_cohort == round(40 * 160 / 60)
  copied, original = map(exp.partition.client, (60 + 63, 3))
  assert copied.tolist() == original.tolist()
  held = np.unique(exp.partition.take(np.arange(exp.partition.samples)))
  assert len(held) == exp.partition.offsets[60]
  given = exp.make, exp.hyper, exp.params, exp.sample(0, 0)
  options = {'fetch': exp.fetch, 'data': exp.data}
  assert canary_clients.payload_sizes(*given, **options) == [10, 640]


def test_canaries_take_turns_if_they_are_many():
  """Catches canaries along one number, whose scores hang together."""
  rng, counts = np.random.default_rng(0), np.zeros(25)
  for number in range(5):
    sent = canary_clients.signals(rng, number, 25, 10)
    assert sorted(sent.place[sent.sign != 0]) == list(range(10))
    counts += sent.sign != 0
  assert (counts == 2).all()
  along = np.array([[3.0, np.nan, -3.0], [np.nan, 2.0, -3.0]])
  scores = one_run.log_ratio(along, audit_games.claim(1.0, 2))
  assert scores[0] > scores[1] > 0 > scores[2]


def test_coins_and_signals_come_from_the_seed_of_the_audit_alone():
  """Catches coins that follow from the config's seed, or from the noise."""
  played = []
  one, other = prepared(rounds=1), prepared(rounds=1, seed=5)
  for game, seed in ((one, 1), (other, 1), (one, 2)):
    sent = []

    def step(hp, state, cohort, signals, key, noise_key, sent=sent):
      sent.append((signals, key, noise_key))
      return state, np.zeros(500), np.zeros(650)

    report = one_run_audit.play(game._replace(step=step), seed)
    played.append((report.coins, *sent[0]))
  coins, signals, keys, noise_keys = zip(*played, strict=True)
  assert (coins[0] == coins[1]).all()
  assert (signals[0].place == signals[1].place).all()
  assert keys[0] != keys[1]
  assert noise_keys[0] == noise_keys[1] != noise_keys[2]
  assert (coins[0] != coins[2]).any()
  assert 180 < coins[0].sum() < 320  # 6 standard deviations


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
