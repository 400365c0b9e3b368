"""Sample the cohort of each round: fixed size, Poisson, in a fixed order, ...

Every draw is a pure function of (seed, round) and returns sorted int32[length]
ids and f32[length] weights; padding is last, with id = population and weight 0.
A draw takes time and memory O(cohort); random allocation, and Poisson draws by
a key of 32 bytes, take time O(population). In a private run the seed must be
secret, except for 'cyclic', whose order is public.
"""

import bisect
from collections.abc import Callable
import math

from fl_sketch.utils import seeding
import numpy as np

Cohort = tuple[np.ndarray, np.ndarray]
# Rules of which a cohort has any size, cut off at a largest one.
RANDOM_SIZE = ('poisson', 'random_allocation')
_COINS = 2**15  # of a random allocation that are held at once


def fixed_size(
  seed: seeding.Root, round: int, population: int, cohort: int
) -> Cohort:
  """Sample `cohort` distinct clients; all sets of that size equally likely."""
  rng = seeding.generator(seed, 'cohort fixed_size', round)
  ids = rng.choice(population, cohort, replace=False, shuffle=False)
  return _padded(np.sort(ids), np.ones(cohort), cohort, population)


def with_replacement(
  seed: int, round: int, population: int, cohort: int
) -> Cohort:
  """Sample `cohort` clients with replacement; the weight counts the draws."""
  rng = seeding.generator(seed, 'cohort with_replacement', round)
  draws = rng.integers(population, size=cohort)
  ids, times = np.unique(draws, return_counts=True)
  return _padded(ids, times, cohort, population)


def poisson(
  seed: seeding.Root,
  round: int,
  population: int,
  probability: float,
  max_cohort: int | None = None,
) -> Cohort:
  """Sample each client independently with the same probability.

  A cohort larger than max_cohort, by default `default_max_cohort`, is cut to a
  uniformly random subset.
  """
  if max_cohort is None:
    max_cohort = default_max_cohort(population, probability)
  rng = seeding.generator(seed, 'cohort poisson', round)
  size = rng.binomial(population, probability)
  ids = rng.choice(population, size, replace=False, shuffle=False)
  if size > max_cohort:
    ids = rng.choice(ids, max_cohort, replace=False, shuffle=False)
  return _padded(np.sort(ids), np.ones(len(ids)), max_cohort, population)


def random_allocation(
  seed: seeding.Root,
  round: int,
  population: int,
  epoch_rounds: int,
  max_cohort: int | None = None,
) -> Cohort:
  """Give each client one uniformly random round of every epoch.

  Also known as balls and bins: Chua et al., arXiv:2412.16802. A cohort is cut
  as by `poisson` of 1 / epoch_rounds: the others have no round in this epoch.

  >>> rounds = [random_allocation(0, r, 9, epoch_rounds=3) for r in range(3)]
  >>> sorted(i for ids, weight in rounds for i in ids[weight > 0].tolist())
  [0, 1, 2, 3, 4, 5, 6, 7, 8]
  """
  if max_cohort is None:
    max_cohort = default_max_cohort(population, 1 / epoch_rounds)
  epoch, place = divmod(round, epoch_rounds)
  rng, blocks = seeding.generator(seed, 'cohort random_allocation', epoch), []
  for first in range(0, population, _COINS):
    coins = rng.integers(epoch_rounds, size=min(_COINS, population - first))
    blocks.append(first + np.flatnonzero(coins == place))
  ids = np.concatenate(blocks)
  if len(ids) > max_cohort:
    rng = seeding.generator(
      seed, 'cohort random_allocation that is cut off', round
    )
    ids = rng.choice(ids, max_cohort, replace=False, shuffle=False)
  return _padded(np.sort(ids), np.ones(len(ids)), max_cohort, population)


def cyclic(seed: int, round: int, population: int, cohort: int) -> Cohort:
  r"""Take the clients in a fixed random order, and then again from the first.

  The order is split into :math:`G = \lceil N / cohort \rceil` groups, whose
  sizes differ by one at most; round t has group t mod G.
  """
  count = groups(population, cohort)
  start, end = ((round % count + i) * population // count for i in range(2))
  ids = _order(seed, np.arange(start, end), population)
  return _padded(np.sort(ids), np.ones(len(ids)), cohort, population)


def groups(population: int, cohort: int) -> int:
  """Return the number of groups of `cyclic` sampling."""
  return -(-population // cohort)


def _order(seed: int, places: np.ndarray, population: int) -> np.ndarray:
  """The clients at these places of a random order of all, int64[...]."""
  # A Feistel network permutes a square of at least the population; numbers
  # beyond it are permuted again. So no array holds all clients.
  side = max(2, math.isqrt(population - 1) + 1)
  roots = seeding.generator(seed, 'cohort cyclic').integers(2**63, size=6)

  def permuted(x):
    left, right = np.divmod(x, side)
    for root in roots:
      shift = seeding.fold(int(root), right) % np.uint64(side)
      left, right = right, (left + shift.astype(np.int64)) % side
    return left * side + right

  ids = permuted(places)
  while (beyond := ids >= population).any():
    ids[beyond] = permuted(ids[beyond])
  return ids


def default_max_cohort(
  population: int, probability: float, tail: float = 1e-9
) -> int:
  """Return the least size that a Poisson cohort exceeds with chance <= `tail`.

  >>> default_max_cohort(3000, 0.2)
  735
  """
  from scipy import special  # slow to import

  # SciPy's inverse takes 1 - tail, which is 1 for a tail below 1e-16.
  rare = lambda size: special.bdtrc(size, population, probability) <= tail
  return max(1, bisect.bisect_left(range(population), True, key=rare))


_RULES = fixed_size, with_replacement, poisson, random_allocation, cyclic
KINDS: dict[str, Callable[..., Cohort]] = {f.__name__: f for f in _RULES}


def _padded(ids, weight, length: int, population: int) -> Cohort:
  room = 0, length - len(ids)
  ids = np.pad(ids, room, constant_values=population)
  return ids.astype(np.int32), np.pad(weight, room).astype(np.float32)
