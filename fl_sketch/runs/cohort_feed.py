"""Sample, lay out and prefetch the cohort of each round.

A process holds one block of the population. A lane is a client's slot.
"""

from concurrent import futures

from fl_sketch import rounds
from fl_sketch.data import cohorts as cohorts_lib
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import Experiment
from fl_sketch.runs.config import Config
from fl_sketch.utils import seeding
import jax
import numpy as np

_TAIL = 1e-9  # probability that a process has more clients than lanes


class CohortFeed:
  """The prefetched cohorts of a run; with `fetch` they carry their samples."""

  def __init__(self, exp: Experiment, mesh: jax.sharding.Mesh, fetch: bool):
    self._exp, self._mesh, self._fetch = exp, mesh, fetch
    self._processes = jax.process_count()
    self._lanes = lanes_per_process(exp.config, mesh.size, self._processes)
    self._pool = futures.ThreadPoolExecutor(1, 'feed')
    self._ahead: dict[int, futures.Future] = {}
    self.sampling_seed: seeding.Root | None = None

  def take(self, done: int):
    """Return the cohorts after `done` rounds: in host memory, on the mesh."""
    config = self._exp.config
    now = self._ahead.pop(done, None) or self._pool.submit(self._make, done)
    after = config.dispatch(done).stop
    if after < config.rounds and after not in self._ahead:
      self._ahead[after] = self._pool.submit(self._make, after)
    return now.result()

  def local_lanes(self, cohort: rounds.Cohort) -> rounds.Cohort:
    """Return the lanes of this process."""
    each = len(cohort.ids) // self._processes
    first = each * jax.process_index()
    return jax.tree.map(lambda x: x[first : first + each], cohort)

  def close(self):
    """Stop the prefetch thread."""
    self._pool.shutdown(cancel_futures=True)

  def _make(self, done):
    config, seed = self._exp.config, self.sampling_seed
    cohorts = [self._exp.sample(r, seed) for r in config.dispatch(done)]
    if self._processes == 1:
      cohorts = [rounds.pad_cohort(x, self._mesh.size) for x in cohorts]
    else:
      sharing = config.population, self._processes
      counts = [self._lanes, *(fullest(x, *sharing) for x in cohorts)]
      lanes = _multiple(max(counts), self._mesh.size // self._processes)
      cohorts = [by_process(x, *sharing, lanes) for x in cohorts]
    local = [self.local_lanes(x)._replace(outcome=None) for x in cohorts]
    if self._fetch:
      fetch = lambda x: self._exp.fetch(self._exp.data, x.batches)
      local = [x._replace(batches=fetch(x)) for x in local]
    if config.rounds_per_dispatch == 1:
      return cohorts, mesh_lib.place_local(self._mesh, local[0])
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *local)
    return cohorts, mesh_lib.place_local(self._mesh, stacked, axis=1)


def starts(population: int, processes: int) -> list[int]:
  """Return the first client of each process's block, and the population.

  >>> starts(10, 3)
  [0, 3, 6, 10]
  """
  return [population * i // processes for i in range(processes + 1)]


def lanes_per_process(config: Config, shards: int, processes: int) -> int:
  """Return a process's client slots; too few with probability < 1e-9."""
  most = int(np.diff(starts(config.population, processes)).max())
  if config.sampling in cohorts_lib.RANDOM_SIZE:
    trials, chance = most, config.sampling_probability
  else:  # without replacement, counts vary less than binomial ones
    trials, chance = config.selected, most / config.population
  lanes = cohorts_lib.default_max_cohort(trials, chance, _TAIL)
  return _multiple(min(lanes, most), shards // processes)


def fullest(cohort: rounds.Cohort, population: int, processes: int) -> int:
  """Count the clients of a cohort on the process that has most of them."""
  return int(np.diff(_edges(cohort.ids, population, processes)).max())


def by_process(
  cohort: rounds.Cohort, population: int, processes: int, lanes: int
) -> rounds.Cohort:
  """Lay a cohort out so that each client is on a lane of its process.

  >>> cohort = rounds.Cohort(np.array([0, 1, 3]), np.ones(3), np.arange(3))
  >>> by_process(cohort, 4, processes=2, lanes=2).ids.tolist()
  [0, 1, 3, 2147483647]

  Its ids ascend, padding last. Each process has `lanes` client slots, at least
  `fullest`.
  """
  edges = _edges(cohort.ids, population, processes)
  real = np.arange(edges[-1])
  owner = np.searchsorted(edges, real, side='right') - 1
  lane = owner * lanes + real - edges[owner]

  def spread(x, empty=0):
    out = np.full((processes * lanes, *x.shape[1:]), empty, x.dtype)
    out[lane] = x[: len(real)]
    return out

  ids = spread(cohort.ids, rounds.PADDING_ID)
  return jax.tree.map(spread, cohort)._replace(ids=ids)


def _edges(ids, population, processes):
  """Where in ascending ids each process's clients begin, and the last end."""
  return np.searchsorted(ids, starts(population, processes))


def _multiple(count, of):
  return -(-count // of) * of
