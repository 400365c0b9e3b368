"""Play the rounds of a run: its jitted round, its data and its state."""

import os

from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import Experiment, client_state, cohort_feed, placement
from fl_sketch.runs.program import Program
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import Mesh
import numpy as np


class Runner:
  """The rounds of a run and their state; `loop` logs and saves them.

  `folder` is for the file of client state, if the host holds that.
  """

  def __init__(
    self, exp: Experiment, mesh: Mesh, folder: str | os.PathLike, run: Program
  ):
    self.mesh, self._fn, where = mesh, run.fn, run.placement
    params = mesh_lib.place(mesh, exp.params)
    self.state = run.init(params)._replace(params=params)
    if where.client_state == 'device':
      self.client_state = client_state.OnDevice(mesh)
    else:
      edges = placement.starts(exp.config.population, jax.process_count())
      clients = range(*edges[jax.process_index() :][:2])
      self.client_state = client_state.OnHost(mesh, self.state, clients, folder)
    data = exp.data if where.data == 'device' else None
    self._data, self.hyper = mesh_lib.place(mesh, (data, exp.hyper))
    self._key = mesh_lib.place(mesh, jax.random.key(exp.config.key_seed))
    self._noise_key: jax.Array | None = None
    self.feed = cohort_feed.CohortFeed(exp, mesh, fetch=where.data == 'host')

  def use(self, secret: generators.Roots):
    """Set the secret of a private run, before its first round."""
    self.feed.sampling_seed = secret.sampling_seed
    self._noise_key = mesh_lib.place(self.mesh, secret.noise_key)

  def play(self, done: int) -> tuple[list[rounds.Cohort], Tree]:
    """Play a dispatch of rounds; returns cohorts, and metrics to wait for."""
    cohorts, placed = self.feed.take(done)
    ids = np.asarray(self.feed.local_lanes(cohorts[0]).ids)
    self.state = self.client_state.attach(self.state, ids)
    self.state, metrics = self._fn(*self.arguments(placed))
    self.client_state.keep(self.state, ids)
    return cohorts, metrics

  def arguments(self, placed: rounds.Cohort) -> tuple[Tree, ...]:
    """Return the arguments of the program, for cohorts on the mesh."""
    rest = self._key, self._data, self._noise_key
    return self.hyper, self.state, placed, *rest

  def evaluate(self) -> dict[str, float]:
    """Return metrics that other processes compute: none."""
    return {}

  def close(self):
    """End the prefetching of cohorts."""
    self.feed.close()
