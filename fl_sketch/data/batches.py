"""Draw the samples that each client uses at each local step.

Every index is a function of (seed, round, client id, position) alone: not of
the other clients of the cohort, or of padding.
"""

import operator

from fl_sketch.data import cohorts
from fl_sketch.data.partitions import Partition
from fl_sketch.utils import seeding
import numpy as np

ORDERS = ('replace', 'cycle', 'mask', 'poisson')
# The probability that a batch is cut. What a cut batch may leak, times
# e^epsilon and the number of batches of all rounds, is far below any delta.
TAIL = 1e-18


def draw(
  partition: Partition,
  ids: np.ndarray,
  seed: seeding.Root,
  round: int,
  local_steps: int,
  batch_size: int,
  order: str = 'replace',
  tail: float = TAIL,
) -> np.ndarray:
  """Draw the batches of a cohort, from each client's own samples.

  >>> p = Partition(np.array([4, 5, 6, 7]), np.array([0, 1, 4]))
  >>> draw(p, np.array([0, 1]), 0, 0, 1, 4, 'cycle').tolist()
  [[[4, 4, 4, 4]], [[5, 6, 7, 5]]]

  Returns int32[C, local_steps, batch_size] indices into the training arrays, of
  ids int[C]. Padding, id = population, has 0, or -1 under 'mask' and 'poisson'.

  * 'replace' is uniform and independent (relative error: size / 2^32).
  * 'cycle' follows the partition's order, from where the last round ended.
  * 'mask' is one pass over a permutation drawn in each round, then -1.
  * 'poisson' takes each sample independently with probability batch_size over
    its client's samples, then -1. The last axis has `max_batch`: a larger batch
    is cut to a uniformly random subset. In a private run the seed is secret.
  """
  ids, start, size = _rows(partition, ids)
  width, length = batch_size, local_steps * batch_size
  if order == 'poisson':
    width = max_batch(partition, batch_size, tail)
    shape = len(ids), local_steps, width
    within = _poisson(seed, round, ids, size, shape, batch_size)
  elif order == 'cycle':
    within = (round * length + np.arange(length)) % np.maximum(size, 1)
  else:
    state = seeding.fold(seeding.fold(seed, round), ids)
    within = (_replace if order == 'replace' else _mask)(state, size, length)
  missing = -1 if order in ('mask', 'poisson') else 0
  index = _take(partition, start, size, within, missing)
  return index.reshape(len(ids), local_steps, width)


def max_batch(partition: Partition, batch_size: int, tail: float = TAIL) -> int:
  """Return the largest Poisson batch, exceeded with probability <= `tail`.

  >>> max_batch(Partition(np.arange(12), np.array([0, 4, 12])), 2, tail=1e-3)
  6

  Raises ValueError if a client has fewer than batch_size samples.
  """
  batch_size, least = operator.index(batch_size), partition.smallest
  if not 1 <= batch_size <= least:
    raise ValueError(
      f'{batch_size=} must be 1 to {least}, the samples of the smallest client.'
    )
  # At a fixed mean P[X > k] of a binomial X grows with the number of trials, if
  # k is at least the mean (Hoeffding, 1956): the largest client's limit holds.
  most = partition.largest
  limit = cohorts.default_max_cohort(most, batch_size / most, tail)
  return max(batch_size, limit)


def full(partition: Partition, ids: np.ndarray) -> np.ndarray:
  """Return all samples of each client, int32[C, 1, largest], padded with -1."""
  _, start, size = _rows(partition, ids)
  within = np.arange(partition.largest)
  within = np.where(within < size, within, -1)
  return _take(partition, start, size, within, missing=-1)[:, None]


def _rows(partition, ids):
  ids = np.asarray(ids, np.int64)
  start = partition.offsets[ids]
  size = partition.offsets[np.minimum(ids + 1, partition.population)] - start
  return ids[:, None], start[:, None], size[:, None]


def _replace(state, size, length):
  # Multiply and shift maps 32 random bits to [0, size); cheaper than a modulo.
  bits = seeding.fold(state, np.arange(length)) >> np.uint64(32)
  return (bits * size.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def _mask(state, size, length):
  """The first `length` entries of a permutation for each client, then -1."""
  place = np.arange(max(size.max(initial=1), length))
  bits = seeding.fold(state, place) >> np.uint64(1)
  bits[place >= size] = np.uint64(2**64 - 1)
  order = np.argsort(bits, axis=1)[:, :length]
  return np.where(place[:length] < size, order, -1)


def _poisson(seed, round, ids, size, shape, batch_size):
  within = np.full(shape, -1)
  for row, client, held in zip(within, ids.flat, size.flat, strict=True):
    if not held:
      continue
    # Not `fold`: splitmix64 can be inverted, so one index would reveal all
    # later coins, which amplification needs to be secret. Philox's streams of
    # (round, client) cannot overlap. Python integers: NumPy's shifts wrap.
    counter = (operator.index(round) << 32) + int(client)
    rng = seeding.generator(seed, 'poisson batches', counter)
    coins = rng.bit_generator.random_raw((shape[1], int(held)))
    # The lowest coins win: too large a batch is cut to a uniform choice.
    # Rounded down, the probability is at most the one accounted for.
    win = np.uint64((operator.index(batch_size) << 64) // int(held) - 1)
    width = min(shape[2], held)
    place = np.argpartition(coins, width - 1, axis=1)[:, :width]
    won = np.take_along_axis(coins, place, axis=1) <= win
    place = np.sort(np.where(won, place, held), axis=1)
    row[:, :width] = np.where(place < held, place, -1)
  return within.reshape(len(ids), -1)


def _take(partition, start, size, within, missing):
  held = (size > 0) & (within >= 0)
  index = partition.take(np.where(held, start + within, 0))
  return np.where(held, index, missing).astype(np.int32)
