"""Verdicts: their error rates, their intervals, and what has no verdict."""

import itertools
import math

import numpy as np
from papers.common import verdicts
import pytest

SEEDS = 3


def noise_page(rng):
  """A page of claims whose truth is on the bound, as the studies make them."""
  t = lambda *shape: rng.standard_t(5, (*shape, SEEDS))
  draws = [t() for _ in range(40)]
  claims = [verdicts.of_seeds('', x, '<=', 0.0) for x in draws]
  # Claims share methods, and so their noise.
  apart = [b - a for a, b in itertools.pairwise(draws[:16])]
  apart += [t(12) for _ in range(10)]
  apart += [verdicts.both_ways(t()) for _ in range(3)]
  claims += [verdicts.of_seeds('', x, '<=', 0.0) for x in apart]
  points = rng.standard_normal((6, 60))
  return claims + [verdicts.of_seeds('', x, '>=', 0.0) for x in points]


def test_pure_noise_decides_nothing():
  """Catches verdicts by the sign of a mean, and claims judged one by one."""
  rng = np.random.default_rng(0)
  pages = [verdicts.decide(noise_page(rng)) for _ in range(300)]
  decided = [set(page) != {verdicts.UNDECIDED} for page in pages]
  # 5 % may; of independent claims 1 % are, more than 15 with less than 1e-6.
  assert sum(decided) <= 15
  # What pays for it: single claims at 5 % would be decided on most pages.
  single = [min(c.p for c in noise_page(rng)) <= 0.05 for _ in range(50)]
  assert sum(single) >= 40


def by_hand(p, level=0.05):
  """Benjamini and Yekutieli: the largest k with p_(k) <= k level / (m c)."""
  m, order, ranks = len(p), np.argsort(p), np.arange(1, len(p) + 1)
  kept = ranks[p[order] <= ranks * level / m / sum(1 / ranks)]
  return set(order[: max(kept, default=0)].tolist())


def test_decided_are_those_of_the_procedure():
  """Catches exact claims that count, and steps of p in a wrong order."""
  rng = np.random.default_rng(2)
  p = 10 ** rng.uniform(-6, 0, 50)
  claims = [verdicts.Claim('', 1.0, '>=', 0.0, p=x) for x in p]
  exact = verdicts.exact('', 1.0, '>=', 0.0)
  untestable = verdicts.untestable('', '>=', 0.0, 'absent')
  found = verdicts.decide([exact, *claims, untestable])  # neither counts
  assert found[0] == verdicts.HOLDS
  assert found[-1] == verdicts.UNTESTABLE
  held = {i for i, v in enumerate(found[1:-1]) if v == verdicts.HOLDS}
  assert held == by_hand(p)
  assert 0 < len(held) < 50


@pytest.mark.parametrize('relation', ['<=', '>='])
@pytest.mark.parametrize('cells', [1, 7])
def test_an_interval_is_of_the_bounds_that_are_not_rejected(relation, cells):
  """Catches ends exchanged, and a correction on the wrong side."""
  x = np.random.default_rng(cells).normal(size=(cells, SEEDS))
  claim = verdicts.of_seeds('', x, relation, 0.0)
  assert claim.low < claim.measured < claim.high
  for end in (claim.low, claim.high):
    at = verdicts.of_seeds('', x, relation, end)
    assert at.p == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize('share', [0.0, 0.5, 1.0])
def test_the_worst_of_many_cells_is_wrong_as_rarely_as_one(share):
  """Catches a maximum that is judged as one number."""
  rng = np.random.default_rng(3)
  mean = np.where(np.arange(12) < 12 * share, 0.0, -9.0)
  x = rng.normal(mean[None, :, None], 1.0, (2000, 12, SEEDS))
  wrong = sum(verdicts.of_seeds('', one, '<=', 0.0).p <= 0.05 for one in x)
  if share:
    assert wrong <= 0.082 * 2000  # 5 % and 6.5 standard errors: below 1e-9
  else:  # all inside: it holds, and is mostly seen to
    assert wrong >= 1900


def test_what_has_no_spread_is_judged_by_signs():
  """Catches a t-test of equal numbers, which is sure of anything."""
  for values in ([1.0] * SEEDS, [1.0, math.nan, 1.0], [0.1 + 0.2, 0.3, 0.3]):
    claim = verdicts.of_seeds('', values, '>=', 0.0)
    assert claim.p >= 0.25
    assert math.isnan(claim.low)
  assert verdicts.of_seeds('', [1.0] * 30, '>=', 0.0).p < 1e-8
  # A run that diverged breaks a claim.
  lost = verdicts.of_seeds('', [math.nan] * 30, '<=', 0.0)
  assert lost.p < 1e-8
  assert not lost.met
  assert verdicts.of_seeds('', [5.0], '>=', 0.0).p == 1.0
