"""The lemmas of FedSKETCH beside measured rounds; 1e-9 to pass by chance."""

import fedsketch_rounds
from fedsketch_rounds import FLAT, D, each_hashes, ends, quadratic, run_of
import numpy as np
from papers.haddadpour.statements import lemmas, rates as haddadpour
import pytest


def one_round(run, rows=1, draws=3000):
  """Of steepness 0.2 to 1 from (1, ..., 1): the loss, and the round."""
  loss = quadratic(np.linspace(0.2, 1, D))
  rng = np.random.default_rng(0)
  x = np.ones((draws, D))
  return loss, fedsketch_rounds.one_round(rng, loss, run, x, rows, 4)


@pytest.mark.covers('S2-Lem4-6')
@each_hashes
def test_lemma_4_holds_and_is_met_by_one_row(hashes):
  """The printed form, omega / k, fails by a factor of 2 for shared hashes."""
  run = run_of(hashes, client_lr=0.01)._replace(variance=50.0)
  moments = {}
  for rows in (1, 3):
    _, sample = one_round(run, rows)
    moments[rows] = (sample.phi**2).sum(1) / run.client_lr**2
  squares = sample.squares.mean()
  bound = lemmas.second_moment(run, squares, convex=True)
  assert ends(moments[3], 1) < bound
  assert ends(moments[1], -1) < bound < ends(moments[1], 1)
  printed = lemmas.second_moment(run, squares, form='printed')
  if hashes == 'shared':
    assert ends(moments[1], -1) > 2 * printed
  else:
    assert printed == bound


@pytest.mark.covers('S2-Lem4-6')
def test_lemmas_5_and_6_hold():
  run = run_of()
  loss, sample = one_round(run)
  gradient = loss.gradient(np.ones(D))
  right = lemmas.inner_product(
    run, np.sum(gradient**2), sample.squares, sample.drifts.sum(1)
  )
  slack = right + sample.moved @ gradient
  assert 0 < ends(slack, -1) < ends(slack, 1) < 0.05 * np.mean(-right)
  bound = lemmas.drift(run, sample.squares.mean(), convex=True)
  assert ends(sample.drifts.max(1), 1) < bound < 3 * sample.drifts.max(1).mean()


@pytest.mark.covers('S2-Lem4-6')
def test_lemmas_4_and_6_fail_where_gradients_follow_the_noise():
  """At a maximum of the cosine what noise begins, the gradients go on with."""
  run = lemmas.Constants(0.0, 1, 1.0, 0.01, 20, 1, 0.03, 1.0)
  assert haddadpour.condition(run) <= 1
  x, rng = np.zeros((40000, 1)), np.random.default_rng(0)
  sample = fedsketch_rounds.one_round(
    rng, fedsketch_rounds.cosine(), run, x, 1, 1
  )
  squares = sample.squares.mean()
  for bound, draws in (
    (lemmas.second_moment, (sample.phi / run.client_lr)[:, 0] ** 2),
    (lemmas.drift, sample.drifts[:, -1]),
  ):
    assert ends(draws, 1) < bound(run, squares)
    assert ends(draws, -1) > bound(run, squares, convex=True)
    assert ends(draws, -1) > bound(run, squares, form='printed')


@pytest.mark.covers('S2-Asm2-5')
def test_constants_are_between_what_is_known():
  # A chi-square of 96,000 degrees is within 10 %: 22 standard deviations.
  loss, rng = quadratic(FLAT), np.random.default_rng(0)
  x = rng.standard_normal((200, D)) * (rng.random((200, D)) < 0.1)
  x = x[loss.value(x) > 0]
  mu = lemmas.pl_constant(loss.value(x), FLAT * x)
  assert 0.2 - 1e-9 <= mu < 0.3
  assert 0.9 < lemmas.smoothness(x, FLAT * x) < 1 + 1e-9
  noisy = FLAT + rng.standard_normal((3000, D)) * np.sqrt(2 / D)
  assert lemmas.gradient_variance(noisy) == pytest.approx(2, rel=0.1)
