"""Which samples each client holds."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from fl_sketch.utils import seeding
import numpy as np

_HOLD_OUT = 2**40  # a counter of the seed beyond all rounds
_offsets = lambda sizes: np.concatenate([[0], np.cumsum(sizes)])


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
  """The samples of each client, as a ragged array of indices.

  Client i holds indices[offsets[i]:offsets[i + 1]] of the training arrays.

  >>> p = from_owner(np.array([1, 0, 1]), 2, np.random.default_rng(0))
  >>> p.population, p.sizes.tolist(), p.client(0).tolist()
  (2, [1, 2], [1])
  """

  indices: np.ndarray | None  # int64[samples]; None stands for arange(samples)
  offsets: np.ndarray  # int64[population + 1]
  names: Sequence[Any] | None = None  # of the clients; None for their numbers

  @property
  def population(self) -> int:
    """Number of clients."""
    return len(self.offsets) - 1

  @property
  def samples(self) -> int:
    """Number of samples of all clients."""
    return int(self.offsets[-1])

  # These take a pass over the population: computed once, not in every round.
  @functools.cached_property
  def sizes(self) -> np.ndarray:
    """Samples per client, int64[population]."""
    return np.diff(self.offsets)

  @functools.cached_property
  def smallest(self) -> int:
    """Number of samples of the smallest client that has any."""
    return int(self.sizes[self.sizes > 0].min())

  @functools.cached_property
  def largest(self) -> int:
    """Number of samples of the largest client."""
    return int(self.sizes.max())

  def take(self, places: np.ndarray) -> np.ndarray:
    """Return the entries of `indices` at these positions."""
    return places if self.indices is None else self.indices[places]

  def client(self, i: int) -> np.ndarray:
    """Return the indices of client i's samples, int64[sizes[i]]."""
    return self.take(np.arange(self.offsets[i], self.offsets[i + 1]))


def cap(p: Partition, samples_per_client: int) -> Partition:
  """Keep at most the first samples_per_client samples of every client."""
  rank = np.arange(p.samples) - np.repeat(p.offsets[:-1], p.sizes)
  sizes = np.minimum(p.sizes, samples_per_client)
  first = np.flatnonzero(rank < samples_per_client)
  return Partition(p.take(first), _offsets(sizes), p.names)


def hold_out(
  p: Partition, share: float, seed: int
) -> tuple[Partition, Partition]:
  """Split a partition into training samples and held-out ones.

  A client of n samples holds out min(round(share n), n - 1) of them, a uniform
  choice that depends on no other client.

  >>> p = Partition(None, np.array([0, 1, 11]))
  >>> rest, held = hold_out(p, 0.2, seed=0)
  >>> rest.sizes.tolist(), held.sizes.tolist()
  ([1, 8], [0, 2])
  """
  most = np.maximum(p.sizes - 1, 0)
  counts = np.minimum(np.rint(share * p.sizes).astype(np.int64), most)
  client = np.repeat(np.arange(p.population), p.sizes)
  rank = np.arange(p.samples) - np.repeat(p.offsets[:-1], p.sizes)
  state = seeding.fold(seeding.fold(seed, _HOLD_OUT), client)
  order = np.lexsort((seeding.fold(state, rank), client))
  held = np.zeros(p.samples, bool)
  held[order] = rank < np.repeat(counts, p.sizes)
  rest = p.take(np.flatnonzero(~held))
  rest = Partition(rest, _offsets(p.sizes - counts))
  return rest, Partition(p.take(np.flatnonzero(held)), _offsets(counts))


def check(labels, population: int) -> int:
  """Return the number of samples, of labels or itself; at least population."""
  samples = labels if np.ndim(labels) == 0 else len(labels)
  if not 1 <= population <= samples:
    raise ValueError(f'{population=} must be 1 to {samples=}.')
  return int(samples)


def from_owner(owner: np.ndarray, population: int, rng) -> Partition:
  """Give sample i to client owner[i], int[samples]; rng draws their order."""
  sizes = np.bincount(owner, minlength=population)
  return Partition(sorted_by(owner, rng), _offsets(sizes))


def sorted_by(values: np.ndarray, rng) -> np.ndarray:
  """Return indices that sort values, in random order among equal ones."""
  order = rng.permutation(len(values))
  return order[np.argsort(values[order], kind='stable')]
