"""What the NumPy twins remember and send in the end, on linear losses."""

from typing import NamedTuple

import cases
from fl_sketch import codecs, rounds, sketches
import numpy as np
import pytest
from twins import TWINS
import twins_base

N, D = cases.POPULATION, cases.DIMENSION
START = np.linspace(-0.5, 0.4, D)
IDENTITY, EXACT = sketches.identity(), codecs.identity()
COUNT = cases.COUNT
SUBTRACT = {'error_update': 'subtract', 'momentum_masking': False}


class Hyper(NamedTuple):
  client_lr: float = 0.05
  server_lr: float = 0.3
  clip_norm: float = 0.01


def full(r=0, scale=1.0):
  """All clients, of weight 1, each with labels of a model of its own."""
  ids, _, (x, y), *_ = cases.cohort(0, r, N)
  shift = 2 * ids.astype(np.float32).reshape(N, 1, 1, 1) / N
  batches = np.float32(scale) * x, np.float32(scale) * (y + shift * x[..., :2])
  return rounds.Cohort(ids, np.ones(N, np.float32), batches)


ALL = [full(r) for r in range(4)]
STILL = [full()] * 4
SILENT = [full(r, scale=0.0) for r in range(4, 64)]


def play(name, cohorts, hp=None, **options):
  return TWINS[name](hp or Hyper(), START, cohorts, cases.KEY, **options)


def same(a, b, atol=1e-6):
  np.testing.assert_allclose(a, b, atol=atol)
  assert np.abs(b - START).max() > 100 * atol, 'nothing moved'


@pytest.fixture
def linear(monkeypatch):
  """Gradients that depend on the batch alone; zero on a `SILENT` one."""
  gradient = lambda theta, x, y: x.ravel()[:D]
  monkeypatch.setattr(twins_base, 'gradient', gradient)


@pytest.mark.representatives('fedcom-options0')
@pytest.mark.parametrize(('name', 'options'), [
  ('fedcom', {'codec': codecs.top_k(2), 'error_feedback': True}),
  ('cocktail_sgd', {'codec': codecs.top_k(2), 'mask_ratio': 0.5}),
])  # fmt: skip
def test_error_feedback_sends_all_in_the_end(linear, name, options):
  same(play(name, ALL + SILENT, **options), play('fedavg', ALL))
  short = play(name, ALL, **options) - play('fedavg', ALL)
  assert np.abs(short).max() > 1e-3


@pytest.mark.representatives('fetchsgd-options2-1')
@pytest.mark.parametrize(('name', 'options', 'gain'), [
  ('sketched_sgd', {'sketch': COUNT, 'k': 1}, 1),
  ('sketched_sgd', {'sketch': IDENTITY, 'k': 2, 'candidates': 1}, 1),
  ('fetchsgd', {'sketch': IDENTITY, 'k': 2, 'momentum': 0.0}, 1),
  ('demo', {'codec': codecs.top_k(1), 'momentum': 1.0, 'signs': False}, 1),
  # 1 + 1/2 + 1/4 + ... = 2.
  ('fetchsgd', SUBTRACT | {'sketch': IDENTITY, 'k': 2, 'momentum': 0.5}, 2),
])  # fmt: skip
def test_error_in_gradients_is_sent_in_the_end(linear, name, options, gain):
  fast = Hyper(server_lr=gain * Hyper().server_lr)
  same(play(name, ALL + SILENT, **options), play('fedsgd', ALL, fast))


@pytest.mark.representatives('ef21')
@pytest.mark.parametrize('name', ['ef21', 'cd_adam'])
def test_markov_compression_learns_a_constant_gradient(linear, name):
  hp, options = Hyper(), {'codec': codecs.top_k(2)}
  if name == 'cd_adam':  # so large an eps leaves SGD
    hp = Hyper(server_lr=0.3e6)
    options |= {'b1': 0.0, 'eps': 1e6}
  cohorts = STILL * 8
  last = play(name, cohorts, hp, **options)
  last = last - play(name, cohorts[:-1], hp, **options)
  want = play('fedsgd', cohorts[:1]) - START
  np.testing.assert_allclose(last, want, atol=1e-5)


@pytest.mark.parametrize('name', ['scaffold', 'ef21'])
def test_a_mean_over_the_population_remembers_the_absent(linear, name):
  """Two halves of the clients, and the first again; gradients g of each."""
  g = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
  ids = np.arange(N, dtype=np.int32)
  weight = np.resize(np.float32([1, 2, 3]), N)
  x = np.broadcast_to(np.tile(g, 2).reshape(N, 1, 5, 4), (N, 3, 5, 4))
  half = lambda at: rounds.Cohort(ids[at], weight[at], (x[at], x[at][..., :2]))
  first, second = half(slice(0, 4)), half(slice(4, N))
  means = np.cumsum(weight[:, None] * g, axis=0)[[3, 7]] / N
  mean = lambda at: np.average(g[at], axis=0, weights=weight[at])
  if name == 'ef21':
    options, steps = {'codec': EXACT}, [means[0], means[1], means[1]]
  else:  # a client's control is its gradient from then on
    options = {'local_steps': 3}
    steps = [mean(slice(0, 4)), mean(slice(4, N)) + means[0], means[1]]
    steps = [3 * Hyper().client_lr * step for step in steps]
  want = START - Hyper().server_lr * np.sum(steps, axis=0)
  same(play(name, [first, second, first], **options), want)
