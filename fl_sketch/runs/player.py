"""What plays the rounds of runs; `loop` logs and saves them."""

from typing import Any, Protocol

from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import Experiment, client_state, cohort_feed, log
from fl_sketch.runs.metrics import Row
from fl_sketch.runs.program import Program
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import Mesh
import numpy as np


class Player(Protocol):
  """The rounds of a run, or of several points of a sweep, and their state.

  `Shards` trains the clients on the devices of a mesh, `SitePlayer` of
  `sites.federation` asks sites, `sweep_program.Points` plays runs at once.
  """

  state: rounds.FedState  # after the rounds played

  def play(self, done: int) -> tuple[list[list[rounds.Cohort]], Tree]:
    """Play a dispatch of rounds after `done` of them.

    Returns the cohorts of each run, one a round, in host memory, and metrics
    [runs x rounds] to wait for.
    """
    ...

  def evaluate(self) -> list[Row]:
    """Return test metrics of the state, for each run."""
    ...


class RunPlayer(Player, Protocol):
  """A player of one run, whose state `loop.train` saves and restores."""

  client_state: client_state.OnDevice | client_state.OnHost

  def start(self, secret: Any, /):
    """Begin, once the state is restored, with the secret of a private run."""

  def close(self):
    """End what runs beside the rounds."""


class Shards:
  """A run on the devices of a mesh: its jitted round, its data and its state.

  `folder` is for the file of client state, if the host holds that.
  """

  def __init__(self, exp: Experiment, mesh: Mesh, folder, run: Program):
    self._mesh, self._fn, where = mesh, run.fn, run.placement
    data = exp.data if where.data == 'device' else None
    arrays = data, exp.hyper, exp.params
    self._data, self._hyper, params = mesh_lib.place(mesh, arrays)
    self.state = run.init(self._hyper, params)._replace(params=params)
    if where.client_state == 'device':
      self.client_state = client_state.OnDevice(mesh)
    else:
      edges = cohort_feed.starts(exp.config.population, jax.process_count())
      clients = range(*edges[jax.process_index() :][:2])
      self.client_state = client_state.OnHost(mesh, self.state, clients, folder)
    self._key = mesh_lib.place(mesh, jax.random.key(exp.config.key_seed))
    self._noise_key: jax.Array | None = None
    self._evaluate = log.evaluator(run.evaluate, exp, mesh)
    self.feed = cohort_feed.CohortFeed(exp, mesh, fetch=where.data == 'host')

  def start(self, secret: generators.Roots | None):
    """Set the secret of a private run."""
    if secret is not None:
      self.feed.sampling_seed = secret.sampling_seed
      self._noise_key = mesh_lib.place(self._mesh, secret.noise_key)

  def play(self, done: int) -> tuple[list[list[rounds.Cohort]], Tree]:
    """Play a dispatch of rounds; the devices may still be at work on it."""
    cohorts, placed = self.feed.take(done)
    ids = np.asarray(self.feed.local_lanes(cohorts[0]).ids)
    self.state = self.client_state.attach(self.state, ids)
    self.state, metrics = self._fn(*self.arguments(placed))
    self.client_state.keep(self.state, ids)
    return [cohorts], metrics

  def arguments(self, placed: rounds.Cohort) -> tuple[Tree, ...]:
    """Return the arguments of the program, for cohorts on the mesh."""
    rest = self._key, self._data, self._noise_key
    return self._hyper, self.state, placed, *rest

  def evaluate(self) -> list[Row]:
    """Return the metrics of the test set, and over clients."""
    return [self._evaluate(self.state.params, self._hyper)]

  def close(self):
    """End the prefetching of cohorts."""
    self.feed.close()
