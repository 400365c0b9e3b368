"""Sums of bounded contributions, and their noise; false alarms below 1e-6."""

import cases
from fl_sketch.privacy.auditing.canaries import (
  fixed_size_sample,
  poisson_sample,
)
from fl_sketch.privacy.mechanisms import sums as m
import jax
import numpy as np
import pytest
from scipy import stats

KEY = jax.random.key(11)
C = 1.5
ROWS = 6
OFF = {'max_norm': C, 'noise_multiplier': 0.0}
privatize = cases.jit(m.privatize_sum, static_argnames='bound')
EACH_BOUND = pytest.mark.parametrize('bound', ['clip', 'normalize'])


def flat(tree):
  leaves = [np.ravel(np.asarray(x)) for x in jax.tree.leaves(tree)]
  x = np.concatenate(leaves)
  return np.concatenate([x.real, x.imag]) if np.iscomplexobj(x) else x


def distance(x, y):
  return np.linalg.norm(flat(x).astype('f8') - flat(y).astype('f8'))


def contributions(seed=0):
  """Rows of very different sizes."""
  rng = np.random.default_rng(seed)
  scale = 10.0 ** rng.uniform(-3, 3, (ROWS, 1))
  rows = (scale * rng.normal(size=(ROWS, 9))).astype('f4')
  return {'a': rows[:, :3], 'b': rows[:, 3:].reshape(ROWS, 2, 3)}


ADVERSARIES = [
  np.zeros(9), np.full(9, 0.01), np.eye(9)[0] * 1e6, np.full(9, 3.4e38),
  np.full(9, 1e-42), np.geomspace(1e-37, 1e37, 9),
  np.array([np.nan] + [5.0] * 8), np.array([-np.inf, np.inf] + [-7.0] * 7),
]  # fmt: skip


def with_row(rows, i, row):
  row = np.float32(row)
  out = jax.tree.map(np.copy, rows)
  out['a'][i], out['b'][i] = row[:3], row[3:].reshape(2, 3)
  return out


@EACH_BOUND
def test_one_row_moves_a_sum_by_at_most_c_and_by_no_less(bound):
  """Catches a sensitivity above the bound, and weights that count."""
  rows, everyone = contributions(), np.ones(ROWS, 'f4')
  without = 1.0 * (np.arange(ROWS) != 2)
  total = lambda x, mask: privatize(KEY, x, mask, bound=bound, **OFF)
  changed = [
    with_row(rows, 2, sign * row)
    for row in ADVERSARIES for sign in (1, -1)
  ]  # fmt: skip
  sums, base = [total(x, everyone) for x in changed], total(rows, without)
  # Only the sign of a mask counts.
  weights = np.float32([0.5, 7, np.nan, 1, 2, np.inf])
  for x in changed:
    assert distance(total(x, weights), base) == 0  # nobody sees who is absent
  rounding = ROWS * C * 1e-6
  added = max(distance(x, base) for x in sums)
  replaced = max(distance(x, y) for x in sums for y in sums)
  assert C * (1 - 1e-5) <= added <= C + rounding
  assert 2 * C * (1 - 1e-5) <= replaced <= 2 * C + rounding


N, DRAWS = 8, 20_000
BINOMIAL = {q: stats.binom(N, q) for q in (0.3, 0.6)}
SIZES = np.arange(N + 1)
# A sampler, and the law of the size of its cohorts.
SAMPLERS = {
  'poisson': (lambda key: poisson_sample(key, N, 0.3, N),
              BINOMIAL[0.3].pmf(SIZES)),
  'cut to three': (lambda key: poisson_sample(key, N, 0.6, 3),
                   np.append(BINOMIAL[0.6].pmf(SIZES[:3]),
                             [BINOMIAL[0.6].sf(2), *[0.0] * 5])),
  'fixed size': (lambda key: fixed_size_sample(key, N, 3), 1.0 * (SIZES == 3)),
}  # fmt: skip


@pytest.mark.parametrize('name', SAMPLERS)
def test_every_client_and_pair_is_taken_as_often(name):
  """Catches coins that are unfair or depend on each other, and biased cuts."""
  sample, law = SAMPLERS[name]
  draw = cases.jit(jax.vmap(sample))
  ids, mask = jax.device_get(draw(jax.random.split(KEY, DRAWS)))
  assert ids.dtype == np.int32
  assert set(np.unique(mask)) <= {0.0, 1.0}
  assert ((ids < N) == (mask > 0)).all()  # the id of an empty slot is N
  taken = np.zeros((DRAWS, N + 1), int)
  np.add.at(taken, (np.arange(DRAWS)[:, None], ids), 1)
  taken = taken[:, :N]
  assert taken.max() == 1  # nobody twice
  single, both = law @ SIZES / N, law @ (SIZES * (SIZES - 1)) / N / (N - 1)
  pairs = taken.T @ taken
  counts = (np.diag(pairs), single), (pairs[np.triu_indices(N, 1)], both)
  for count, chance in counts:
    spread = (DRAWS * chance * (1 - chance)) ** 0.5
    assert np.abs(count - DRAWS * chance).max() < 6 * spread  # 2e-9 each
  sizes = np.bincount(taken.sum(1), minlength=N + 1)
  often = DRAWS * law > 5
  assert not sizes[law == 0].any()
  if often.sum() > 1:
    got, want = sizes[often], law[often] / law[often].sum()
    assert stats.chisquare(got, want * got.sum()).pvalue > 1e-7
