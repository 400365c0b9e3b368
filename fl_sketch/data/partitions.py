"""Partition training samples over clients.

Every partition is a pure function of its arguments, gives each sample to at
most one client and leaves no client empty. The samples of a client are in
random order, so that reading them in order mixes the classes.
"""

from collections.abc import Callable
import heapq

from fl_sketch.data import ragged
from fl_sketch.data.ragged import Partition, cap
from fl_sketch.utils import seeding
import numpy as np


def iid(labels, population: int, seed: int) -> Partition:
  """Deal all samples at random; sizes differ by at most one."""
  samples = ragged.check(labels, population)
  rng = seeding.generator(seed, 'iid')
  owner = np.empty(samples, np.int64)
  owner[rng.permutation(samples)] = np.arange(samples) % population
  return ragged.from_owner(owner, population, rng)


def size_skew(
  labels, population: int, seed: int, *, sigma: float = 1.0
) -> Partition:
  """Give clients i.i.d. samples, in log-normal numbers.

  Each client first gets one sample; the others are shared in proportion to
  exp(sigma * N(0, 1)).
  """
  samples = ragged.check(labels, population)
  rng = seeding.generator(seed, 'size_skew')
  share = np.cumsum(np.exp(sigma * rng.standard_normal(population)))
  bounds = np.rint(share / share[-1] * (samples - population)).astype(np.int64)
  sizes = 1 + np.diff(bounds, prepend=0)
  owner = rng.permutation(np.repeat(np.arange(population), sizes))
  return ragged.from_owner(owner, population, rng)


def one_each(labels, population: int, seed: int) -> Partition:
  """Give client i only sample i."""
  ragged.check(labels, population)
  return Partition(np.arange(population), np.arange(population + 1))


def label_shards(
  labels, population: int, seed: int, *, shards_per_client: int = 5
) -> Partition:
  """Deal shards of sorted samples: Das et al., arXiv:2106.07094, section 5.

  The samples are sorted by label and cut into population * shards_per_client
  contiguous shards, equal up to one sample, which are dealt at random.

  >>> label_shards(np.arange(12) // 6, 2, 0, shards_per_client=1).sizes.tolist()
  [6, 6]
  """
  samples = ragged.check(labels, population)
  shards = population * shards_per_client
  if shards > samples:
    raise ValueError(
      f'{population=} * {shards_per_client=} must be <= {samples=}.'
    )
  rng = seeding.generator(seed, 'label_shards')
  order = ragged.sorted_by(np.asarray(labels), rng)
  owner = np.empty(samples, np.int64)
  shard = np.arange(samples) * shards // samples
  owner[order] = (rng.permutation(shards) // shards_per_client)[shard]
  return ragged.from_owner(owner, population, rng)


def classes_per_client(
  labels, population: int, seed: int, *, classes: int = 2
) -> Partition:
  """Give every client exactly `classes` labels: FedSKETCH's partition.

  Haddadpour et al., arXiv:2008.04975, section 5. All samples are used. The
  population * classes places are shared among the labels in proportion to their
  samples, and those of a label equally among its places.

  >>> p = classes_per_client(np.arange(20) % 4, 6, seed=0, classes=2)
  >>> [len(set(p.client(i) % 4)) for i in range(6)]
  [2, 2, 2, 2, 2, 2]
  """
  ragged.check(labels, population)
  labels = np.unique(np.asarray(labels), return_inverse=True)[1]
  counts = np.bincount(labels)
  rng = seeding.generator(seed, 'classes_per_client')
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
  return ragged.from_owner(owner, population, rng)


def dirichlet(
  labels, population: int, seed: int, *, alpha: float = 0.5
) -> Partition:
  """Split each label over the clients in Dirichlet(alpha) proportions.

  Random samples of the largest clients move to those without any: the usual
  code draws again, which never ends for many clients.

  Source: Yurochkin et al., ICML 2019.
  """
  samples = ragged.check(labels, population)
  labels = np.asarray(labels)
  rng = seeding.generator(seed, 'dirichlet')
  owner = np.empty(samples, np.int64)
  for label in np.unique(labels):
    group = rng.permutation(np.flatnonzero(labels == label))
    share = rng.dirichlet(np.full(population, float(alpha)))
    bounds = np.floor(np.cumsum(share)[:-1] * len(group))
    owner[group] = np.searchsorted(bounds, np.arange(len(group)), side='right')
  _fill_up(owner, population, rng)
  return ragged.from_owner(owner, population, rng)


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
  """Move a sample of the largest client to each without any, in place."""
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
  p = KINDS[kind](labels, population, seed, **options)
  return p if samples_per_client is None else cap(p, samples_per_client)
