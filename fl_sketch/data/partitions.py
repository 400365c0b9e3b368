"""Partitions training samples over clients.

Every partition is a pure function of its arguments, gives each sample to at
most one client and leaves no client empty. The samples of a client are in
random order, so that reading them in order mixes the classes.
"""

from collections.abc import Callable
import inspect

from fl_sketch.data import ragged
from fl_sketch.data.label_skew import (
  classes_per_client,
  dirichlet,
  label_shards,
)
from fl_sketch.data.ragged import Partition, cap
from fl_sketch.utils import checks, seeding
import numpy as np


def iid(labels, population: int, seed: int) -> Partition:
  """Deals all samples at random; sizes differ by at most one.

  >>> iid(10, 4, seed=0).sizes.tolist()
  [3, 3, 2, 2]

  `labels` are int[samples], or only their number.
  """
  samples = ragged.check(labels, population)
  rng = seeding.generator(seed, 'iid')
  owner = np.empty(samples, np.int64)
  owner[rng.permutation(samples)] = np.arange(samples) % population
  return ragged.from_owner(owner, population, rng)


def size_skew(
  labels, population: int, seed: int, *, sigma: float = 1.0
) -> Partition:
  """Gives clients i.i.d. samples, in log-normal numbers.

  Each client first gets one sample; the others are shared in proportion to
  exp(sigma * N(0, 1)); sigma 0 is `iid`, whose arguments the others are.

  >>> size_skew(10, 4, seed=0, sigma=2.0).sizes.sum()
  np.int64(10)
  """
  samples = ragged.check(labels, population)
  checks.at_least('sigma', sigma, 0)
  rng = seeding.generator(seed, 'size_skew')
  share = np.cumsum(np.exp(sigma * rng.standard_normal(population)))
  bounds = np.rint(share / share[-1] * (samples - population)).astype(np.int64)
  sizes = 1 + np.diff(bounds, prepend=0)
  owner = rng.permutation(np.repeat(np.arange(population), sizes))
  return ragged.from_owner(owner, population, rng)


def one_each(labels, population: int, seed: int) -> Partition:
  """Gives client i only sample i; arguments as of `iid`, without use of a seed.

  >>> one_each(3, 3, seed=0).indices.tolist()
  [0, 1, 2]
  """
  ragged.check(labels, population)
  return Partition(np.arange(population), np.arange(population + 1))


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
  """Makes a partition of `KINDS`, whose arguments the others are.

  >>> partition('iid', 100, 5, samples_per_client=8).sizes.tolist()
  [8, 8, 8, 8, 8]

  `labels` may be their number but of a kind of `BY_LABEL`; samples_per_client,
  unless it is None, bounds the clients' sizes, see `cap`.
  """
  checks.choice('kind', kind, tuple(KINDS))
  parameters = inspect.signature(KINDS[kind]).parameters.values()
  allowed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
  for option in options:
    if option not in allowed:
      allowed.append('samples_per_client')
      raise ValueError(f'{kind=} has no {option=}; choose from {allowed}.')
  if kind in BY_LABEL and np.ndim(labels) == 0:
    raise ValueError(f"{kind=} requires labels; use kind='iid' without them.")
  p = KINDS[kind](labels, population, seed, **options)
  return p if samples_per_client is None else cap(p, samples_per_client)
