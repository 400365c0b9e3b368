"""Server side of rounds over messages: opens rounds, and bounds what they take.

The caller provides the transport and closes rounds, see `inbox`.
"""

import math
from typing import Any

from fl_sketch import rounds
from fl_sketch.rounds import client_step, comms, keys as keys_lib
from fl_sketch.sites.inbox import Array, Inbox
from fl_sketch.sites.programs import Programs
from fl_sketch.utils import checks
import jax


class Server:
  """The server of a run: compiled programs, and bounds of what it takes.

  Args:
    programs: of the run's algorithm.
    run: its `wire.fingerprint`.
    noise_key: key[], secret root of the server's noise; of a private run only.
    incarnation: how often the server has started: replies to an earlier one
      are not summed.
    max_norm: the largest Euclidean norm of a decoded payload; None is no bound.
    summary: makes the metrics of clients; another one only if it is private.
  """

  def __init__(
    self,
    programs: Programs,
    *,
    run: bytes,
    noise_key: jax.Array | None = None,
    incarnation: int = 0,
    max_norm: float | None = None,
    summary: client_step.Summary = client_step.means_and_counts,
  ):
    programs.check_noise(noise_key)
    self.programs, self.run, self.incarnation = programs, run, incarnation
    self.noise_key: Any = noise_key
    self.max_norm = math.inf
    if max_norm is not None:
      if not programs.streamed:
        raise ValueError(f'{max_norm=} requires payloads decoded one by one.')
      self.max_norm = checks.positive('max_norm', max_norm)
    self._summary = summary
    self.summarise = jax.jit(self._summarise)
    self.is_finite = jax.jit(client_step.all_finite)

  def open(self, state: rounds.FedState, ids: Array, weight: Array) -> Inbox:
    """Open the next round, from the state after the round before.

    Ids, int32[C], are as of `rounds.Cohort`, each client once; weights, f32[C],
    are 0 for clients that are not selected, and for padding. Another C compiles
    the programs again.
    """
    return Inbox(self, state, ids, weight)

  def _summarise(self, round_index, observed):
    """Return the metrics of a round, of clients [C]."""
    hp, noise = self.programs.hp, None
    if self.programs.private:
      noise = keys_lib.noise_keys(self.noise_key, round_index)
    releases = self.programs.releases
    # The server is one shard.
    summary = jax.vmap(
      lambda x: self._summary(x, comms.Shards(), hp, releases, noise),
      out_axes=None,
      axis_name=comms.SHARD,
    )
    return summary(jax.tree.map(lambda x: x[None], observed))
