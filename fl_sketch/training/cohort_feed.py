"""Feeds rounds: who takes part, on which lane, and with which samples.

A process reads the samples, and holds the rows, of a block of the population
and of nobody else: cohorts are laid out so that every client's lane is on a
device of its process. What a round reads is made ready in the background while
the round before runs.
"""

from concurrent import futures

from fl_sketch import experiment, rounds
from fl_sketch.data import availability, cohorts as cohorts_lib
from fl_sketch.experiment import config as config_lib
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import placement
import jax
import numpy as np

_TAIL = 1e-9  # how rarely a process has more clients in a round than lanes


class Feed:
  """Cohorts of a run, in the order of its rounds.

  Args:
    exp: the experiment.
    mesh: over which cohorts are spread.

  Raises:
    PlacementError: all data shall lie on all devices of several processes.
  """

  def __init__(self, exp: experiment.Experiment, mesh: jax.sharding.Mesh):
    c = exp.config
    self._exp, self._mesh = exp, mesh
    self._processes, process = jax.process_count(), jax.process_index()
    starts = placement.starts(c.population, self._processes)
    self.clients = range(*starts[process : process + 2])
    self.on_device = placement.data_on_device(exp)
    placement.check_processes(c)
    self._lanes = own_lanes(c, mesh.size, self._processes)
    self._pool = futures.ThreadPoolExecutor(1, 'feed')
    self._ahead: dict[int, futures.Future] = {}
    self.secret_root: int | None = None

  def take(self, done: int):
    """The cohorts of the next dispatch: in host memory, and on the mesh.

    Args:
      done: rounds before it.
    """
    step = self._exp.config.rounds_per_dispatch
    now = self._ahead.pop(done, None) or self._pool.submit(self._make, done)
    after = done + step
    if after < self._exp.config.rounds and after not in self._ahead:
      self._ahead[after] = self._pool.submit(self._make, after)
    return now.result()

  def own(self, cohort: rounds.Cohort) -> rounds.Cohort:
    """The lanes of this process."""
    each = len(cohort.ids) // self._processes
    first = each * jax.process_index()
    return jax.tree.map(lambda x: x[first : first + each], cohort)

  def close(self):
    """Ends the background work."""
    self._pool.shutdown(cancel_futures=True)

  def _make(self, done):
    c = self._exp.config
    rounds_ahead = range(done, done + c.rounds_per_dispatch)
    made = [self._exp.sample(r, self.secret_root) for r in rounds_ahead]
    if self._processes == 1:
      made = [rounds.pad_cohort(cohort, self._mesh.size) for cohort in made]
    else:
      sharing = c.population, self._processes
      counts = [self._lanes, *(fullest(cohort, *sharing) for cohort in made)]
      lanes = _multiple(max(counts), self._mesh.size // self._processes)
      made = [by_process(cohort, *sharing, lanes) for cohort in made]
    return made, self._placed(made)

  def _placed(self, made):
    own = [self.own(cohort)._replace(outcome=None) for cohort in made]
    if not self.on_device:
      fetch = lambda c: self._exp.fetch(self._exp.data, c.batches)
      own = [c._replace(batches=fetch(c)) for c in own]
    if len(own) == 1:
      return mesh_lib.place_own(self._mesh, own[0])
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *own)
    return mesh_lib.place_own(self._mesh, stacked, axis=1)


def leaves_lanes_empty(c: config_lib.Config) -> bool:
  """Whether lanes of a round may have nobody on them, apart from padding."""
  some = c.sampling != 'fixed_size' or availability.in_force(c)
  return some or jax.process_count() > 1


def own_lanes(c: config_lib.Config, shards: int, processes: int) -> int:
  """Lanes of each process: more of its clients come once in 1e9 rounds.

  Args:
    c: a config; for how cohorts are drawn.
    shards: devices of all processes.
    processes: how many there are.
  """
  selected = availability.selected(c.cohort, c.over_sampling)
  most = int(np.diff(placement.starts(c.population, processes)).max())
  if c.sampling == 'poisson':
    trials, chance = most, c.cohort / c.population
  else:  # without replacement numbers vary less than with it
    trials, chance = selected, most / c.population
  lanes = cohorts_lib.default_max_cohort(trials, chance, _TAIL)
  return _multiple(min(lanes, most), shards // processes)


def fullest(cohort: rounds.Cohort, population: int, processes: int) -> int:
  """How many clients of a cohort the process that has most of them has."""
  return int(np.diff(_edges(cohort.ids, population, processes)).max())


def by_process(
  cohort: rounds.Cohort, population: int, processes: int, lanes: int
) -> rounds.Cohort:
  """Lays a cohort out so that each client is with the process that has it.

  >>> cohort = rounds.Cohort(np.array([0, 1, 3]), np.ones(3), np.arange(3))
  >>> by_process(cohort, 4, processes=2, lanes=2).ids.tolist()
  [0, 1, 3, 2147483647]

  Args:
    cohort: ids in rising order, padding last.
    population: clients in total.
    processes: how many there are.
    lanes: of each, at least `fullest`.

  Returns:
    A cohort of processes x lanes.
  """
  edges = _edges(cohort.ids, population, processes)
  real = np.arange(edges[-1])
  owner = np.searchsorted(edges, real, side='right') - 1
  lane = owner * lanes + real - edges[owner]

  def spread(x):
    out = np.zeros((processes * lanes, *x.shape[1:]), x.dtype)
    out[lane] = x[: len(real)]
    return out

  spread_out = jax.tree.map(spread, cohort)
  empty = np.ones(processes * lanes, bool)
  empty[lane] = False
  spread_out.ids[empty] = rounds.NOBODY
  return spread_out


def _edges(ids, population, processes):
  """Where in rising ids the clients of each process begin, and all end."""
  return np.searchsorted(ids, placement.starts(population, processes))


def _multiple(count, of):
  return -(-count // of) * of
