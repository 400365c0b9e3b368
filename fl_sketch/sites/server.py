"""The server of a run over messages, for which an `inbox.Inbox` is a round."""

import dataclasses
from typing import Any

from fl_sketch.rounds import client_step, comms, keys as keys_lib
from fl_sketch.sites.programs import Programs
import jax


@dataclasses.dataclass(eq=False)
class Server:
  """The server of a run: compiled programs, and bounds of what it takes."""

  programs: Programs  # of the run's algorithm
  run: bytes  # its `sealed.fingerprint`
  _: dataclasses.KW_ONLY
  noise_key: Any = None  # key[], secret root of noise; of a private run only
  # How often it has started: replies to an earlier start are not summed.
  incarnation: int = 0
  max_norm: float | None = None  # the largest norm of a decoded payload
  # Makes the metrics of clients; another one only if it is private.
  summary: client_step.Summary = client_step.means_and_counts

  def __post_init__(self):
    self.programs.check_noise(self.noise_key)
    if self.max_norm is not None and not self.programs.streamed:
      raise ValueError(
        f'max_norm={self.max_norm} requires payloads decoded one by one.'
      )
    self.summarise = jax.jit(self._summarise)

  def _summarise(self, round_index, observed):
    """Return the metrics of a round, of clients [C]."""
    programs, noise = self.programs, None
    if programs.private:
      noise = keys_lib.noise_keys(self.noise_key, round_index)
    # The server is one shard.
    summary = jax.vmap(
      lambda x: self.summary(
        x, comms.Shards(), programs.hp, programs.releases, noise
      ),
      out_axes=None,
      axis_name=comms.SHARD,
    )
    return summary(jax.tree.map(lambda x: x[None], observed))
