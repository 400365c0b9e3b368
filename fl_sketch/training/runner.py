"""What plays the rounds of a run: its program, its data and its state."""

import os
from typing import Any

from fl_sketch import experiment, rounds
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import (
  client_state,
  cohort_feed,
  noise_secret,
  placement,
)
import jax
import numpy as np


class Runner:
  """Plays rounds, knows nothing of logs and checkpoints.

  Args:
    exp: the experiment.
    mesh: over which devices.
    folder: on the disk that holds the rows of clients, if the host has them.
    program: `abstract_run.Program.fn` of the same experiment and mesh.

  Attributes:
    state: after the last round.
    feed: where cohorts come from.
    rows: where clients' rows are.

  Raises:
    PlacementError: what the config wants on the devices cannot lie there.
  """

  def __init__(
    self,
    exp: experiment.Experiment,
    mesh: jax.sharding.Mesh,
    folder: str | os.PathLike,
    program: Any,
  ):
    self.exp, self.mesh = exp, mesh
    self.feed = cohort_feed.Feed(exp, mesh)
    self.rows = self._make_rows(folder)
    self.state = self._first_state()
    self._program = program
    data = exp.data if self.feed.on_device else None
    self._data, self._hyper = mesh_lib.place(mesh, (data, exp.hyper))
    self._key = mesh_lib.place(mesh, jax.random.key(exp.config.key_seed))
    self._noise_key: jax.Array | None = None

  def use(self, secret: noise_secret.Secret | None):
    """Takes the secret of a private run, before its first round."""
    if secret is not None:
      self.feed.secret_root = secret.sampling
      self._noise_key = mesh_lib.place(self.mesh, secret.noise_key)

  def play(self, done: int) -> tuple[list[rounds.Cohort], Any]:
    """Plays one dispatch of rounds.

    Args:
      done: rounds before it.

    Returns:
      The cohorts, in host memory, and the metrics, which are still computed.
    """
    cohorts, placed = self.feed.take(done)
    ids = np.asarray(self.feed.own(cohorts[0]).ids)
    self.state = self.rows.attach(self.state, ids)
    self.state, metrics = self._program(*self.arguments(placed))
    self.rows.keep(self.state, ids)
    return cohorts, metrics

  def arguments(self, placed: rounds.Cohort) -> tuple[Any, ...]:
    """What the program takes, for cohorts on the mesh."""
    rest = self._key, self._data, self._noise_key
    return self._hyper, self.state, placed, *rest

  def close(self):
    """Ends what runs in the background."""
    self.feed.close()

  def _init(self, population):
    exp = self.exp
    return rounds.init(exp.make(exp.hyper), exp.params, population)

  def _make_rows(self, folder):
    one = jax.eval_shape(lambda: self._init(1))
    if placement.rows_on_device(self.exp.config, client_state.leaves(one)):
      return client_state.OnDevice(self.mesh)
    clients = self.feed.clients
    return client_state.OnHost(self.mesh, self._init(1), clients, folder)

  def _first_state(self):
    everybody = self.rows.rows_of == 'population'
    state = self._init(self.exp.config.population if everybody else 1)
    placed = mesh_lib.place(self.mesh, state._replace(server=None))
    if self.exp.config.server_state == 'replicated':
      server = mesh_lib.place(self.mesh, state.server)
    else:
      cut = lambda x, s: mesh_lib.place(self.mesh, x, s.spec)
      parts = mesh_lib.parts(self.mesh, state.server)
      server = jax.tree.map(cut, state.server, parts)
    return placed._replace(server=server)
