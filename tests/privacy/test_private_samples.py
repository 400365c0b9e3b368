"""Coins of units; false alarms below 1e-6."""

import cases
from fl_sketch.privacy.auditing.canaries import (
  fixed_size_sample,
  poisson_sample,
)
import jax
import numpy as np
import pytest
from scipy import stats

from tests.privacy.test_mechanisms import KEY

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
