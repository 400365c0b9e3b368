"""Communication cost of a run: bytes, as exact integers on the host."""

from collections.abc import Mapping, Sequence
import dataclasses

from fl_sketch.rounds import fates
import numpy as np

# Metrics of a round that count what is left out of it.
LEFT_OUT = {
  'rejected_clients': 'rejected updates', 'late_clients': 'late clients',
  'silent_clients': 'silent clients',
  'full_cohorts': 'cohorts that filled max_cohort',
}  # fmt: skip


@dataclasses.dataclass
class Ledger:
  r"""The bytes that clients have sent and received so far.

  A participant receives, at the start of its round, the broadcasts since it
  last took part, or the dense parameters where they are fewer bytes:
  :math:`\min(\sum_s \mathrm{broadcast}_s, \mathrm{dense} + \mathrm{state})`,
  and at least the broadcast of this round. The state is what a client needs to
  redo later server steps, such as moments; it counts only if a broadcast is
  smaller than the parameters. Of an epoch of several rounds (`Algorithm.epoch`)
  only the last broadcast is missed. Seeds, initial parameters and state of
  links before the broadcast are free. Stragglers and dropouts receive as much;
  a straggler also sends its payload.
  """

  dense: int  # bytes of the parameters
  heard: np.ndarray  # int64[population], broadcast_total at its last round
  broadcast_total: int = 0  # bytes of all broadcasts so far, one an epoch
  uplink_total: int = 0  # bytes that all clients sent so far
  downlink_total: int = 0  # bytes that all clients received so far
  state: int = 0  # bytes of what a client replicates beside the parameters
  epoch: int = 1  # rounds
  rounds: int = 0  # so far
  # For each metric of `LEFT_OUT`: [clients dropped, rounds with such clients].
  left_out: dict[str, list[int]] = dataclasses.field(default_factory=dict)

  @classmethod
  def empty(
    cls, population: int, dense: int, state: int = 0, epoch: int = 1
  ) -> 'Ledger':
    """Return the ledger before the first round."""
    heard = np.zeros(population, np.int64)
    return cls(dense, heard, state=state, epoch=epoch)

  def charge(
    self, ids: np.ndarray, weight: np.ndarray, up: int, down: int,
    outcome: np.ndarray | None = None,
  ) -> dict[str, int | float]:  # fmt: skip
    """Add the bytes of one round; return its row of metrics.

    A participant sent `up` bytes, the broadcast has `down`. `outcome` is
    int8[C], codes of `fates`; None: clients of weight above 0
    participated, and no other was selected. The row has bytes per participant
    (for downlink their mean), totals of all selected clients, and with outcomes
    `late_clients` (stragglers) and `silent_clients` (dropouts).
    """
    losses = {}
    if outcome is None:
      codes = fates.PARTICIPATED, fates.NOT_SELECTED
      outcome = np.where(weight > 0, *codes)
    else:
      losses['late_clients'] = int((outcome == fates.STRAGGLER).sum())
      dropped_out = outcome == fates.DROPPED_OUT
      losses['silent_clients'] = int(dropped_out.sum())
    selected = outcome != fates.NOT_SELECTED
    receivers = ids[selected]
    participated = outcome[selected] == fates.PARTICIPATED
    missed = self.broadcast_total + int(down) - self.heard[receivers]
    self.rounds += 1
    if self.rounds % self.epoch == 0:
      self.broadcast_total += int(down)
    whole = self.dense + (self.state if down < self.dense else 0)
    received = np.minimum(missed, max(whole, int(down)))
    self.heard[receivers] = self.broadcast_total
    count = int(participated.sum())
    self.uplink_total += int(up) * (count + losses.get('late_clients', 0))
    self.downlink_total += int(received.sum())
    mean = int(received[participated].sum()) / count if count else 0
    return {
      'uplink_bytes': int(up) if count else 0,
      'downlink_bytes': int(mean) if mean == int(mean) else mean,
      'total_uplink_bytes': self.uplink_total,
      'total_downlink_bytes': self.downlink_total, **losses,
    }  # fmt: skip

  def note_left_out(self, row: Mapping[str, int | float]):
    """Count the clients that a round with this row of metrics left out."""
    for name in filter(row.get, LEFT_OUT):
      clients, rounds = self.left_out.get(name, (0, 0))
      self.left_out[name] = [clients + int(row[name]), rounds + 1]

  def totals(self) -> dict[str, int | dict[str, list[int]]]:
    """Return the Python numbers for a checkpoint; `heard` is an array."""
    totals = 'broadcast_total', 'uplink_total', 'downlink_total'
    names = *totals, 'left_out', 'rounds'
    return {name: getattr(self, name) for name in names}


def sentence_of(left_out: Mapping[str, Sequence[int]], rounds: int) -> str:
  """Say how many clients these rounds left out; '' if none.

  >>> sentence_of({'rejected_clients': [3, 2], 'late_clients': [9, 4]}, 20)
  'Left out of 20 rounds: 3 rejected updates (in 2), 9 late clients (in 4).'
  """
  parts = [f'{n} {LEFT_OUT[k]} (in {r})' for k, (n, r) in left_out.items()]
  return f'Left out of {rounds} rounds: {", ".join(parts)}.' if parts else ''
