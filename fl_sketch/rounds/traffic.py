"""The bytes of a run, counted on the host in exact integers."""

import dataclasses
from typing import Any

from fl_sketch.data import availability
import numpy as np


@dataclasses.dataclass
class Ledger:
  r"""What every client has moved so far.

  A client that takes part pays, at the start of its round, for the broadcasts
  since it last did, or for the dense parameters where they are fewer bytes:
  :math:`\min(\sum_s \mathrm{broadcast}_s, \mathrm{dense})`, yet never for less
  than the broadcast of its own round, which may exceed them. Seeds are free,
  and so are the initial parameters, which come from one; the broadcast of its
  own round is among those it pays for. Stragglers and dropouts pay for them as
  well; a straggler also for its upload.

  A client that falls back on the dense parameters is taken to go on from there;
  where it replicates more (moments of the server's optimiser, MARINA's previous
  parameters, CD-Adam's estimate), it would need that too.

  Attributes:
    dense: bytes of the parameters.
    broadcast_total: bytes of all broadcasts so far, had one client heard all.
    heard: int64[population], `broadcast_total` when each client last took part.
    uplink_total: bytes that all clients sent so far.
    downlink_total: bytes that all clients received so far.
  """

  dense: int
  heard: np.ndarray
  broadcast_total: int = 0
  uplink_total: int = 0
  downlink_total: int = 0

  @classmethod
  def empty(cls, population: int, dense: int) -> 'Ledger':
    """The ledger before the first round."""
    return cls(dense, np.zeros(population, np.int64))

  def charge(
    self,
    ids: np.ndarray,
    weight: np.ndarray,
    up: int,
    down: int,
    outcome: np.ndarray | None = None,
  ) -> dict[str, Any]:
    """Enters one round; returns its row of metrics.

    Args:
      ids: int32[C].
      weight: f32[C]; clients of weight 0 are absent.
      up: bytes that one participant sent.
      down: bytes of the round's broadcast.
      outcome: int8[C], of `availability.outcomes`; None: clients of
        weight above 0 participated, and no other was selected.

    Returns:
      Bytes per participant of this round (for downlink their mean), totals of
      all selected clients, and, where there are outcomes, how many of them were
      stragglers (late_clients) or dropouts (silent_clients).
    """
    lost = {}
    if outcome is None:
      codes = availability.PARTICIPATED, availability.NOT_SELECTED
      outcome = np.where(weight > 0, *codes)
    else:
      lost['late_clients'] = int((outcome == availability.STRAGGLER).sum())
      lost['silent_clients'] = int((outcome == availability.DROPPED_OUT).sum())
    selected = outcome != availability.NOT_SELECTED
    who = ids[selected]
    participated = outcome[selected] == availability.PARTICIPATED
    self.broadcast_total += int(down)
    missed = self.broadcast_total - self.heard[who]
    received = np.minimum(missed, max(self.dense, int(down)))
    self.heard[who] = self.broadcast_total
    count = int(participated.sum())
    self.uplink_total += int(up) * (count + lost.get('late_clients', 0))
    self.downlink_total += int(received.sum())
    mean = int(received[participated].sum()) / count if count else 0
    return {
      'uplink_bytes': int(up) if count else 0,
      'downlink_bytes': int(mean) if mean == int(mean) else mean,
      'total_uplink_bytes': self.uplink_total,
      'total_downlink_bytes': self.downlink_total,
      **lost,
    }

  def totals(self) -> dict[str, int]:
    """The Python integers, for a checkpoint; `heard` is saved as an array."""
    return {
      'broadcast_total': self.broadcast_total,
      'uplink_total': self.uplink_total,
      'downlink_total': self.downlink_total,
    }
