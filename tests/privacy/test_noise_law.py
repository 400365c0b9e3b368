"""The law of released noise: exact chances, real rounds, what it sees.

Sides on which nothing must be found have a false-alarm rate of 1e-7 each.
"""

import cases
from fl_sketch import algorithms, rounds
from fl_sketch.privacy.accounting import correlation
from fl_sketch.privacy.auditing import noise_law
from fl_sketch.privacy.mechanisms import aggregation
from fl_sketch.rounds import mesh as mesh_lib
import jax
import numpy as np
import pytest
from scipy import stats

NEVER = 1e-7
RNG = np.random.default_rng(7)
WHITE = RNG.normal(size=(40, 6, 16))
BANDED = correlation.Correlation(correlation.square_root(3), 3, 3)


def same(x, axis, size):
  """Noise that is equal over blocks of an axis."""
  first = np.arange(x.shape[axis]) // size * size
  return np.take(x, first, axis)


FLAT = RNG.normal(size=(1, 4, 650))
BROKEN = {
  'less': WHITE * 0.8,
  'more': WHITE * 1.2,
  'every round': same(WHITE, 1, 6),
  'two rounds': same(WHITE, 1, 2),
  'blocks': same(WHITE, 2, 8),
  'size of a cohort': WHITE * (RNG.poisson(4, (40, 6, 1)) / 4) ** 0.5,
  'one number': np.concatenate([WHITE[..., 1:], WHITE[..., 1:2]], -1),
  'runs': same(WHITE, 0, 40),
  'no noise in a round': WHITE * (np.arange(6) > 0)[:, None],
  'not finite': np.where(WHITE == WHITE[3, 2, 1], np.nan, WHITE),
  'one run, every round': same(FLAT, 1, 4),
  'one run, blocks': same(FLAT, 2, 8),
  'one run, overlapping streams': np.stack(
    [np.roll(FLAT[:, 0], 3 * t, -1) for t in range(4)], 1
  ),
  'one run, arrays': np.concatenate([FLAT[..., 200:210], FLAT[..., 10:]], -1),
}  # fmt: skip


@pytest.mark.parametrize('name', BROKEN)
def test_what_is_not_white_is_seen(name):
  """Catches a test of the law that is not made, or of a wrong law."""
  leaves = (10, 190, 450) if name.startswith('one run') else ()
  assert noise_law.evaluate(BROKEN[name], leaves).chance < NEVER


def test_chances_are_no_smaller_than_they_are():
  """Catches a chance that is not multiplied by the number of tests."""
  chances = np.array([
    noise_law.evaluate(np.random.default_rng(i).normal(size=(5, 4, 8)), (3, 5))
    .chance for i in range(400)
  ])  # fmt: skip
  for share in 0.2, 0.05:
    found = (chances <= share).sum()
    assert 0 < found <= stats.binom.isf(NEVER, 400, share)


@pytest.mark.parametrize('rounds', [2, 7])
def test_banded_noise_is_made_white(rounds):
  """Catches a weight, or an epoch, that is not that of the claim."""
  matrix = np.zeros((rounds, rounds))
  for t in range(rounds):
    for j in range(t % 3 + 1):
      matrix[t, t - j] = correlation.square_root(3)[j] / correlation.ONE
  drawn = RNG.normal(size=(2, rounds, 5))
  white = noise_law.whitened(matrix @ drawn, BANDED)
  np.testing.assert_allclose(white, drawn, atol=1e-12)
  np.testing.assert_array_equal(noise_law.whitened(drawn, None), drawn)


def broadcasts(release, runs=40, count=6):
  """What rounds of SAFL broadcast whose clients hold nothing."""
  hash_rounds = {} if release.correlation is None else {'hash_rounds': 3}
  send = lambda hp: lambda params, batches, key, correction: (batches, {})
  make = algorithms.make(
    'safl', local=send, sketch=cases.CYCLIC, privacy=release, **hash_rounds
  )
  cohort_fn = rounds.cohort_step(make, mesh_lib.cohort_mesh(1))
  zeros = jax.tree.map(lambda x: np.zeros((4, *x.shape), 'f4'), cases.PARAMS)
  cohort = rounds.Cohort(np.arange(4, dtype='i4'), np.ones(4, 'f4'), zeros)
  state = rounds.init(make(cases.HP), cases.PARAMS, 4)

  def one(index, secret):
    now = state._replace(round=index)
    sent, _, _ = cohort_fn(cases.HP, now, cohort, cases.KEY, None, secret)
    return sent

  play = jax.vmap(jax.vmap(one, (0, None)), (None, 0))
  secrets = jax.random.split(cases.SECRET, runs)
  sent = cases.jit(play)(np.arange(count, dtype='i4'), secrets)
  return np.asarray(sent).reshape(runs, count, -1) / deviation(release)


def deviation(release):
  hp = cases.HP
  return float(hp.noise_multiplier * hp.clip_norm) / release.expected_cohort


@pytest.mark.parametrize(
  'over_rounds', [None, pytest.param(BANDED, marks=pytest.mark.nightly)],
  ids=['white', 'banded'],
)  # fmt: skip
def test_real_rounds_broadcast_the_noise_that_is_claimed(over_rounds):
  """Catches noise of a wrong size, repeated over rounds, runs or numbers."""
  sent = broadcasts(aggregation.Release(4.0, correlation=over_rounds))
  white = noise_law.whitened(sent, over_rounds)
  assert noise_law.evaluate(white).chance > NEVER
  other = BANDED if over_rounds is None else None
  assert noise_law.evaluate(noise_law.whitened(sent, other)).chance < NEVER
  broken = sent[:, :1].repeat(6, 1), same(sent, 2, 2), sent * 0.8
  assert max(noise_law.evaluate(x).chance for x in broken) < NEVER
