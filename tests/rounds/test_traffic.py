"""Bytes of a run: the ledger against a slow reference."""

from fl_sketch.rounds import fates, traffic
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

UP, DENSE, POPULATION = 100, 100, 4
JOINED, SKIPPED = fates.PARTICIPATED, fates.NOT_SELECTED
LATE, SILENT = fates.STRAGGLER, fates.DROPPED_OUT
ROUND = st.tuples(
  st.sampled_from([10, 40, DENSE]),
  st.lists(
    st.sampled_from([JOINED, SKIPPED, LATE, SILENT]),
    min_size=POPULATION, max_size=POPULATION,
  ),
)  # fmt: skip


class Reference:
  """Every client's missed broadcasts, one by one."""

  def __init__(self, state):
    self.state, self.missed = state, [[] for _ in range(POPULATION)]
    self.up = self.down = 0

  def play(self, down, codes):
    received = {}
    for missed in self.missed:
      missed.append(down)
    for client, fate in enumerate(codes):
      if fate == SKIPPED:
        continue
      whole = DENSE + (self.state if down < DENSE else 0)
      received[client] = min(sum(self.missed[client]), max(whole, down))
      self.missed[client] = []
      self.up += UP * (fate in (JOINED, LATE))
    self.down += sum(received.values())
    joined = [x for c, x in received.items() if codes[c] == JOINED]
    return {
      'uplink_bytes': UP if joined else 0,
      'downlink_bytes': sum(joined) / max(len(joined), 1),
      'total_uplink_bytes': self.up,
      'total_downlink_bytes': self.down,
      'late_clients': codes.count(LATE),
      'silent_clients': codes.count(SILENT),
    }


@pytest.mark.covers('S0-w0')
@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sampled_from([0, 50]), st.lists(ROUND, max_size=6))
def test_who_was_away_pays_for_what_was_missed_but_no_more_than_dense(
  state, rounds
):
  """Catches a catch-up without cap or state, and clients that pay nothing."""
  book = traffic.Ledger.empty(POPULATION, DENSE, state=state)
  reference, ids = Reference(state), np.arange(POPULATION)
  for down, codes in rounds:
    weight = np.float32([fate == JOINED for fate in codes])
    row = book.charge(ids, weight, UP, down, np.int8(codes))
    assert row == reference.play(down, codes)


def test_totals_are_exact_past_31_and_63_bits_and_padding_pays_nothing():
  book, most = traffic.Ledger.empty(3, 2**31), 2**31 - 1
  ids, weight = np.int32([0, 1, 2, 3]), np.float32([1, 1, 1, 0])
  row = [book.charge(ids, weight, most, most) for _ in range(5)][-1]
  assert row['total_uplink_bytes'] == 15 * most
  assert row['total_downlink_bytes'] == 15 * most
  book.uplink_total = 2**63
  row = book.charge(ids[:1], weight[:1], UP, 40)
  assert row['total_uplink_bytes'] == 2**63 + UP
