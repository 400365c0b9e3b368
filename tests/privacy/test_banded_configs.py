"""Configs of correlated noise: refusals, account, calibration, fixed order."""

from fl_sketch import runs
from fl_sketch.accounting import gaussian
from fl_sketch.data import cohorts
from fl_sketch.runs import privacy_plan
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from tests.runs.training.test_private_runs import PRIVATE, SAMPLES

BANDED = PRIVATE | {
  'sampling': 'cyclic', 'cohort': 2, 'noise': 'banded', 'noise_bands': 2,
}  # fmt: skip
TABLES = {
  'algorithm': 'safl', 'hash_rounds': 2,
  'sketch': {'kind': 'block_cyclic', 'size': 50},
}  # fmt: skip
FIXED = {'sampling': 'fixed_size', 'cohort': 6}
HEAPRIX = {
  'algorithm': 'fedsketch_heaprix', 'options': {'k': 5, 'exact': False},
  'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20},
}  # fmt: skip


@pytest.mark.parametrize(('name', 'fields'), [
  ('noise', {'sampling': 'poisson', 'cohort': 4}),
  ('noise', TABLES | {'hash_rounds': None}),
  ('noise_bands', TABLES | {'noise_bands': 3}),
  ('noise', FIXED | {'trust': 'local'}), ('noise', SAMPLES),
  ('orrelated', HEAPRIX), ('noise', {'noise_multiplier': 1e7}),
])  # fmt: skip
def test_a_config_without_an_account_is_refused(name, fields):
  """Catches banded noise that has no account, cancels nothing, or is NaN."""
  with pytest.raises(ValueError, match=name):
    runs.build(BANDED | fields)


def built(**fields):
  return runs.build(BANDED | fields)


def test_a_config_is_accounted_as_it_runs():
  """Catches an account of other epochs or participation than the run has."""
  exp = built()
  (release,) = exp.make(exp.hyper).sensitivity
  assert release == 1
  guarantee = exp.guarantee
  # In four rounds a client takes part in the first and the last, or once.
  squares = np.cumsum([1, 0.25, 0.0625, 1.125**2])
  assert guarantee.sensitivity == pytest.approx(squares[-1] ** 0.5)
  want = [gaussian.gaussian_epsilon(2 / x**0.5, 1e-2) for x in squares]
  assert guarantee.statement.epsilon == pytest.approx(want[-1])
  np.testing.assert_allclose(guarantee.epsilons(range(1, 5)), want, rtol=1e-6)
  assert float(exp.hyper.noise_multiplier) == 2
  text = guarantee.statement.sentence()
  assert 'one of every 3 rounds' in text
  assert '1 steps, sampling full' in text
  of_epochs = built(**TABLES).guarantee
  want = gaussian.gaussian_epsilon(2 / 1.25**0.5, 1e-2, steps=2)
  assert of_epochs.statement.epsilon == pytest.approx(want)
  assert runs.account(exp.config) == guarantee


def test_noise_is_calibrated_for_a_draw():
  """Catches a calibration that forgets the sensitivity of C."""
  fields = {'epsilon': 3.0, 'noise_multiplier': None}
  fields |= {'sampling': 'fixed_size', 'cohort': 6}
  exp = built(**fields)
  c = 0.5 ** np.arange(4)
  sensitivity = np.linalg.norm(np.cumsum(c))  # everybody in every round
  want = sensitivity * gaussian.gaussian_noise_multiplier(3.0, 1e-2)
  assert float(exp.hyper.noise_multiplier) == pytest.approx(want, rel=1e-6)
  assert exp.guarantee.statement.epsilon == pytest.approx(3, rel=1e-6)


def test_independent_noise_in_a_fixed_order_counts_participations():
  """Catches rounds in which a client is away that are counted."""
  exp = built(noise=None, noise_bands=None)
  want = [gaussian.gaussian_epsilon(2.0, 1e-2, steps=k) for k in (1, 1, 1, 2)]
  got = exp.guarantee.epsilons(range(1, 5))
  np.testing.assert_allclose(got, want, rtol=1e-6)
  assert exp.make(exp.hyper).releases == 1


def test_a_client_takes_part_in_every_third_round():
  """Catches an order that hangs on the secret, or changes between passes."""
  exp = built(rounds=12)
  chosen = [exp.sample(r, 5 * r) for r in range(12)]
  present = [set(x.ids[x.weight > 0].tolist()) for x in chosen]
  assert present == 4 * present[:3]
  assert set.union(*present[:3]) == set(range(6))
  assert [set(exp.sample(r, 1).ids.tolist()) for r in range(3)] == present[:3]
  assert privacy_plan.release_of(exp.config).clients == 2


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 9))
def test_a_fixed_order_has_everybody_once(population, share, seed):
  """Catches a permutation that is none, or groups that differ by two."""
  cohort = 1 + round(share * (population - 1))
  seen = []
  for r in range(cohorts.groups(population, cohort)):
    ids, weight = cohorts.cyclic(seed, r, population, cohort)
    assert ids.shape == weight.shape == (cohort,)
    seen.append(ids[weight > 0])
    assert (np.diff(seen[-1]) > 0).all()
  assert np.ptp([len(x) for x in seen]) <= 1
  assert sorted(np.concatenate(seen)) == list(range(population))
