"""Partition training samples over clients; record which samples each holds.

Every partition is a pure function of its arguments, gives each sample to at
most one client and leaves no client empty. The samples of a client are in
random order, so that reading them in order mixes the classes.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import heapq
from typing import Any

from fl_sketch.utils import seeding
import numpy as np

Generator = np.random.Generator
_HOLD_OUT = 2**40  # a counter of the seed beyond all rounds
_offsets = lambda sizes: np.concatenate([[0], np.cumsum(sizes)])


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
  """The samples of each client, as a ragged array of indices.

  Client i holds indices[offsets[i]:offsets[i + 1]] of the training arrays.

  >>> p = _from_owner(np.array([1, 0, 1]), 2, np.random.default_rng(0))
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

  Of n samples min(round(share n), n - 1) are held out, a uniform choice that
  depends on no other client.

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
  part = lambda mine, n: Partition(p.take(np.flatnonzero(mine)), _offsets(n))
  return part(~held, p.sizes - counts), part(held, counts)


def _from_owner(owner: np.ndarray, population: int, rng) -> Partition:
  """Give sample i to client owner[i], int[samples]; rng draws their order."""
  sizes = np.bincount(owner, minlength=population)
  return Partition(_sorted_by(owner, rng), _offsets(sizes))


def _sorted_by(values: np.ndarray, rng) -> np.ndarray:
  order = rng.permutation(len(values))
  return order[np.argsort(values[order], kind='stable')]


def iid(samples: int, population: int, rng: Generator) -> Partition:
  """Deal all samples at random; sizes differ by at most one."""
  owner = np.empty(samples, np.int64)
  owner[rng.permutation(samples)] = np.arange(samples) % population
  return _from_owner(owner, population, rng)


def size_skew(
  samples: int, population: int, rng: Generator, *, sigma: float = 1.0
) -> Partition:
  """Give clients i.i.d. samples, in log-normal numbers.

  Each client gets one sample; others are shared as exp(sigma * N(0, 1)).
  """
  share = np.cumsum(np.exp(sigma * rng.standard_normal(population)))
  bounds = np.rint(share / share[-1] * (samples - population)).astype(np.int64)
  sizes = 1 + np.diff(bounds, prepend=0)
  owner = rng.permutation(np.repeat(np.arange(population), sizes))
  return _from_owner(owner, population, rng)


def one_each(samples: int, population: int, rng: Generator) -> Partition:
  """Give client i only sample i."""
  return Partition(np.arange(population), np.arange(population + 1))


def label_shards(
  labels: np.ndarray,
  population: int,
  rng: Generator,
  *,
  shards_per_client: int = 5,
) -> Partition:
  """Deal shards of sorted samples: Das et al., arXiv:2106.07094, section 5.

  Samples sorted by label are cut into population * shards_per_client shards,
  equal up to one sample, which are dealt at random.

  >>> labels = np.arange(12) // 6
  >>> partition('label_shards', labels, 2, shards_per_client=1).sizes.tolist()
  [6, 6]
  """
  samples = len(labels)
  shards = population * shards_per_client
  if shards > samples:
    raise ValueError(
      f'{population=} * {shards_per_client=} must be <= {samples=}.'
    )
  order = _sorted_by(labels, rng)
  owner = np.empty(samples, np.int64)
  shard = np.arange(samples) * shards // samples
  owner[order] = (rng.permutation(shards) // shards_per_client)[shard]
  return _from_owner(owner, population, rng)


def classes_per_client(
  labels: np.ndarray, population: int, rng: Generator, *, classes: int = 2
) -> Partition:
  """Give every client exactly `classes` labels: FedSKETCH's partition.

  Haddadpour et al., arXiv:2008.04975, section 5. All samples are used. The
  population * classes places are shared among the labels in proportion to their
  samples, and those of a label equally among its places.

  >>> p = partition('classes_per_client', np.arange(20) % 4, 6, classes=2)
  >>> [len(set(p.client(i) % 4)) for i in range(6)]
  [2, 2, 2, 2, 2, 2]
  """
  labels = np.unique(labels, return_inverse=True)[1]
  counts = np.bincount(labels)
  left = _places(counts, population, classes)
  holders = [[] for _ in counts]
  # The labels with most places left: always succeeds (Havel and Hakimi).
  for i in rng.permutation(population):
    for label in np.lexsort((rng.random(len(left)), -left))[:classes]:
      left[label] -= 1
      holders[label].append(i)
  owner = np.empty(len(labels), np.int64)
  for label, clients in enumerate(holders):
    samples = rng.permutation(np.flatnonzero(labels == label))
    owner[samples] = np.resize(rng.permutation(clients), len(samples))
  return _from_owner(owner, population, rng)


def dirichlet(
  labels: np.ndarray, population: int, rng: Generator, *, alpha: float = 0.5
) -> Partition:
  """Split each label over the clients in Dirichlet(alpha) proportions.

  Random samples of the largest clients move to those without any. Source:
  Yurochkin et al., ICML 2019.
  """
  owner = np.empty(len(labels), np.int64)
  for label in np.unique(labels):
    group = rng.permutation(np.flatnonzero(labels == label))
    share = rng.dirichlet(np.full(population, float(alpha)))
    bounds = np.floor(np.cumsum(share)[:-1] * len(group))
    owner[group] = np.searchsorted(bounds, np.arange(len(group)), side='right')
  _fill_up(owner, population, rng)
  return _from_owner(owner, population, rng)


def _places(counts: np.ndarray, population: int, classes: int) -> np.ndarray:
  """The number of clients that hold each label, int64[labels], all >= 1."""
  most = np.minimum(counts, population)
  total, labels, room = population * classes, len(counts), most.sum()
  if not labels <= total <= room:
    raise ValueError(
      f'{population=} * {classes=} must be >= {labels=} and <= {room}, the '
      'number of pairs of a client and a label that the samples allow.'
    )
  places = np.ones(labels, np.int64)
  heap = [(-n, label) for label, n in enumerate(counts) if most[label] > 1]
  heapq.heapify(heap)
  for _ in range(total - labels):
    label = heapq.heappop(heap)[1]
    places[label] += 1
    if places[label] < most[label]:
      heapq.heappush(heap, (-counts[label] / places[label], label))
  return places


def _fill_up(owner: np.ndarray, population: int, rng) -> None:
  sizes = np.bincount(owner, minlength=population)
  empty = np.flatnonzero(sizes == 0)
  if not len(empty):
    return
  held = {int(i): [] for i in np.flatnonzero(sizes > 1)}
  for sample in rng.permutation(len(owner)):
    if owner[sample] in held:
      held[int(owner[sample])].append(sample)
  heap = [(-len(samples), i) for i, samples in held.items()]
  heapq.heapify(heap)
  for client in empty:
    i = heap[0][1]
    owner[held[i].pop()] = client
    heapq.heapreplace(heap, (-len(held[i]), i))


# Of all samples: with other data of one, other clients hold other samples.
BY_LABEL = ('label_shards', 'classes_per_client', 'dirichlet')
_KINDS = iid, label_shards, classes_per_client, dirichlet, size_skew, one_each
KINDS: dict[str, Callable[..., Partition]] = {f.__name__: f for f in _KINDS}


def partition(
  kind: str,
  labels,
  population: int,
  seed: int = 0,
  *,
  samples_per_client: int | None = None,
  **options,
) -> Partition:
  """Make a partition of `KINDS`; the options are its arguments.

  >>> partition('iid', 100, 5, samples_per_client=8).sizes.tolist()
  [8, 8, 8, 8, 8]

  `labels` are int[samples], or their number except for `BY_LABEL`;
  samples_per_client bounds the clients' sizes, see `cap`.
  """
  if kind in BY_LABEL and np.ndim(labels) == 0:
    raise ValueError(f"{kind=} requires labels; use kind='iid' without them.")
  samples = int(labels) if np.ndim(labels) == 0 else len(labels)
  if not 1 <= population <= samples:
    raise ValueError(f'{population=} must be 1 to {samples=}.')
  dealt = np.asarray(labels) if kind in BY_LABEL else samples
  rng = seeding.generator(seed, kind)
  p = KINDS[kind](dealt, population, rng, **options)
  return p if samples_per_client is None else cap(p, samples_per_client)
