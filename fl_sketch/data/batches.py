"""Which of its samples a client uses at each local step.

Every index is a hash of (seed, round, client id, position), so a client's
batches depend neither on who else is in the cohort nor on padding, and any
round can be drawn alone.
"""

from fl_sketch.data import seeding
from fl_sketch.data.ragged import Partition
import numpy as np

ORDERS = ('replace', 'cycle', 'mask')


def draw(
  partition: Partition,
  ids: np.ndarray,
  seed: int,
  round: int,
  local_steps: int,
  batch_size: int,
  order: str = 'replace',
) -> np.ndarray:
  """Draws the batches of a cohort, from each client's own samples.

  >>> p = Partition(np.array([4, 5, 6, 7]), np.array([0, 1, 4]))
  >>> draw(p, np.array([0, 1]), 0, 0, 1, 4, 'cycle').tolist()
  [[[4, 4, 4, 4]], [[5, 6, 7, 5]]]

  Args:
    partition: who holds what.
    ids: int[C]; id = population is padding.
    seed: root of the draw.
    round: the round, >= 0.
    local_steps: batches a client.
    batch_size: samples a batch.
    order: 'replace', uniform and independent (relative error of a probability
      below size / 2^32); 'cycle', the client's samples in the partition's
      order, going on where the round before ended; 'mask', one pass over a
      permutation fresh in each round, then -1.

  Returns:
    int32[C, local_steps, batch_size] indices into the training arrays. Of
    padding 0, and -1 under 'mask'.
  """
  _check(round, local_steps, batch_size, order)
  ids, start, size = _rows(partition, ids)
  length = local_steps * batch_size
  if order == 'cycle':
    within = (round * length + np.arange(length)) % np.maximum(size, 1)
  else:
    state = seeding.fold(seeding.fold(seed, round), ids)
    within = (_replace if order == 'replace' else _mask)(state, size, length)
  missing = -1 if order == 'mask' else 0
  index = _take(partition, start, size, within, missing)
  return index.reshape(len(ids), local_steps, batch_size)


def full(partition: Partition, ids: np.ndarray) -> np.ndarray:
  """Makes one batch of all samples of each client.

  >>> p = Partition(np.array([4, 5, 6, 7]), np.array([0, 1, 4]))
  >>> full(p, np.array([0, 1])).tolist()
  [[[4, -1, -1]], [[5, 6, 7]]]

  Args:
    partition: who holds what.
    ids: int[C]; id = population is padding.

  Returns:
    int32[C, 1, size of the largest client of all], filled with -1.
  """
  _, start, size = _rows(partition, ids)
  within = np.arange(partition.sizes.max())
  within = np.where(within < size, within, -1)
  return _take(partition, start, size, within, missing=-1)[:, None]


def _check(round, local_steps, batch_size, order) -> None:
  if order not in ORDERS:
    raise ValueError(f'Expected {order=} in {ORDERS}.')
  if round < 0 or local_steps < 1 or batch_size < 1:
    raise ValueError(
      f'Expected {round=} >= 0, {local_steps=} >= 1 and {batch_size=} >= 1.'
    )


def _rows(partition, ids):
  """Ids int64[C], and first sample and size of each client, int64[C, 1]."""
  ids, population = np.asarray(ids, np.int64), partition.population
  if ids.size and not 0 <= ids.min() <= ids.max() <= population:
    raise ValueError(
      f'Expected 0 <= ids <= {population=}, got {ids.min()} to {ids.max()}.'
    )
  start = partition.offsets[ids]
  size = partition.offsets[np.minimum(ids + 1, population)] - start
  return ids[:, None], start[:, None], size[:, None]


def _replace(state, size, length):
  # Multiply and shift maps 32 random bits to [0, size); cheaper than a modulo.
  bits = seeding.fold(state, np.arange(length)) >> np.uint64(32)
  return (bits * size.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def _mask(state, size, length):
  """The first `length` places of a permutation of each client, then -1."""
  place = np.arange(max(size.max(initial=1), length))
  bits = seeding.fold(state, place) >> np.uint64(1)
  bits[place >= size] = np.uint64(2**64 - 1)
  return np.where(
    place[:length] < size, np.argsort(bits, axis=1)[:, :length], -1
  )


def _take(partition, start, size, within, missing):
  held = (size > 0) & (within >= 0)
  index = partition.indices[np.where(held, start + within, 0)]
  return np.where(held, index, missing).astype(np.int32)
