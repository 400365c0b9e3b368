from fl_sketch.data import availability
from fl_sketch.rounds import traffic
import numpy as np
import pytest

UP, DOWN, DENSE = 100, 40, 100
JOINED, SKIPPED = availability.PARTICIPATED, availability.NOT_SELECTED
LATE, SILENT = availability.STRAGGLER, availability.DROPPED_OUT


def charge(book, ids, up=UP, down=DOWN):
  ids = np.array([*ids, 3], np.int32)  # one of padding
  weight = np.append(np.ones(len(ids) - 1, np.float32), 0)
  return book.charge(ids, weight, up, down)


@pytest.mark.covers('S0-w0')
def test_who_was_away_pays_for_what_was_missed_but_no_more_than_dense():
  book = traffic.Ledger.empty(3, DENSE)
  assert charge(book, [0, 1])['downlink_bytes'] == 40
  assert charge(book, [0])['downlink_bytes'] == 40
  # Client 1 missed one broadcast of 40, client 2 two: 120 > 100.
  row = charge(book, [0, 1, 2])
  assert row['downlink_bytes'] == (40 + 80 + 100) / 3
  assert row['total_downlink_bytes'] == 80 + 40 + 220
  assert row['total_uplink_bytes'] == (2 + 1 + 3) * UP


def test_dense_parameters_come_with_the_state_that_is_needed_to_go_on():
  """Catches a catch-up from which a client could not redo the next step."""
  book = traffic.Ledger.empty(2, DENSE, state=50)
  rows = [charge(book, ids) for ids in ([0], [0], [0], [0, 1])]
  assert rows[-1]['total_downlink_bytes'] == 4 * 40 + (DENSE + 50)
  book = traffic.Ledger.empty(2, DENSE, state=50)
  assert charge(book, [0], down=DENSE)['downlink_bytes'] == DENSE
  assert charge(book, [1], down=DENSE)['downlink_bytes'] == DENSE


def test_totals_are_exact_past_31_and_63_bits():
  book, most = traffic.Ledger.empty(3, 2**31), 2**31 - 1
  row = [charge(book, [0, 1, 2], most, most) for _ in range(5)][-1]
  assert row['total_uplink_bytes'] == 15 * most
  assert row['total_downlink_bytes'] == 15 * most
  book.uplink_total = 2**63
  assert charge(book, [0])['total_uplink_bytes'] == 2**63 + UP


def test_stragglers_are_billed_both_ways_and_dropouts_the_download():
  book = traffic.Ledger.empty(5, DENSE)
  charge(book, [0, 1])
  ids, weight = np.arange(5), np.float32([1, 0, 0, 0, 2])
  outcome = np.int8([JOINED, LATE, SILENT, SKIPPED, JOINED])
  row = book.charge(ids, weight, UP, DOWN, outcome)
  assert row == {
    'uplink_bytes': UP,
    'downlink_bytes': (40 + 80) / 2,
    'total_uplink_bytes': 2 * UP + 3 * UP,
    'total_downlink_bytes': 80 + (40 + 40 + 80 + 80),
    'late_clients': 1,
    'silent_clients': 1,
  }
  # The late and the silent one have heard; client 3 has missed two rounds.
  assert charge(book, [1])['downlink_bytes'] == 40
  assert charge(book, [2])['downlink_bytes'] == 2 * 40
  assert book.heard.tolist() == [80, 120, 160, 0, 80]


def test_a_round_that_nobody_answers_in_time_is_not_free():
  book = traffic.Ledger.empty(2, DENSE)
  outcome = np.int8([LATE, SILENT])
  row = book.charge(np.arange(2), np.zeros(2), UP, DOWN, outcome)
  assert (row['uplink_bytes'], row['downlink_bytes']) == (0, 0)
  assert row['total_uplink_bytes'] == UP
  assert row['total_downlink_bytes'] == 2 * DOWN
