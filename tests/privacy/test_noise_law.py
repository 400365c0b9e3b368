"""The law of released noise: chances, rounds, what it sees; alarms 1e-7."""

import audit_games
import breaks
import cases
from fl_sketch.accounting import correlation
from fl_sketch.privacy.auditing import noise_law
import numpy as np
import private_cases as private
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
WIDE = RNG.normal(size=(500, 6, 16))
BROKEN = {
  'less': WHITE * 0.8,
  'more': WHITE * 1.2,
  'every round': same(WHITE, 1, 6),
  'blocks': same(WHITE, 2, 8),
  'size of a cohort': WHITE * (RNG.poisson(4, (40, 6, 1)) / 4) ** 0.5,
  'one number': np.concatenate([WHITE[..., 1:], WHITE[..., 1:2]], -1),
  'runs': same(WHITE, 0, 40),
  'no noise after some rounds': WHITE * (np.arange(6) < 4)[:, None],
  'cut at three deviations': np.clip(WIDE, -3, 3),
  'uniform': 3**0.5 * (2 * stats.norm.cdf(WIDE) - 1),
  'long tails': stats.laplace.ppf(stats.norm.cdf(WIDE)) / 2**0.5,
  'signs of every round': abs(WHITE) * same(np.sign(WHITE), 1, 6),
  'keys of 11 bits': WIDE.reshape(-1, 16)[RNG.integers(2**11, size=(500, 6))],
  'not finite': np.where(WHITE == WHITE[3, 2, 1], np.nan, WHITE),
  'one run, every round': same(FLAT, 1, 4),
  'one run, blocks': same(FLAT, 2, 8),
  'one run, overlapping streams': np.stack(
    [np.roll(FLAT[:, 0], 3 * t, -1) for t in range(4)], 1
  ),
  'one run, streams two rounds apart': np.concatenate(
    [FLAT, np.roll(FLAT[:, 2:], 5, -1)], 1
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


@pytest.mark.representatives('right')
@pytest.mark.parametrize('broken', [False, True], ids=['right', 'repeated'])
def test_real_rounds_broadcast_the_noise_that_is_claimed(broken, monkeypatch):
  """Catches noise of a wrong size, repeated over rounds, runs or numbers."""
  claimed = audit_games.claim(1.4, steps=3)
  if broken:
    breaks.same_round(monkeypatch)
  make = audit_games.algorithm('safl', claimed, sketch=cases.CYCLIC)
  game = audit_games.game_of(make, claimed)._replace(noise=1.4)
  law = audit_games.play(game, NEVER, samples=100).law
  assert (law.chance < NEVER) == broken, law.text()


def law_of_draws(name):
  """The least chance of the releases of a round without data."""
  scale = private.Z * private.C / private.R
  sent = [x[:, None] / scale for x in private.draws(name, private.SILENT)]
  return min(noise_law.evaluate(x).chance for x in sent)


@pytest.mark.representatives('safl')
@private.by_name(private.OPTIONS, [])
def test_every_private_algorithm_broadcasts_normal_numbers(name):
  """Catches tails, a covariance or repeated draws that are not of the claim."""
  assert law_of_draws(name) > NEVER


@pytest.mark.nightly
@pytest.mark.parametrize('plant', [breaks.cut, breaks.few_keys, breaks.uniform])
def test_noise_of_another_law_is_seen_in_a_release(plant, monkeypatch):
  """Catches a law that does not see tails, or keys of few bits."""
  fresh = private.program.__wrapped__  # a program with the break
  monkeypatch.setattr(private, 'program', fresh)
  plant(monkeypatch)
  assert law_of_draws('safl') < NEVER
