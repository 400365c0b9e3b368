from fl_sketch import ledger
import numpy as np

UP, DOWN, DENSE = 100, 40, 100


def charge(book, ids, up=UP, down=DOWN):
  ids = np.array([*ids, 3], np.int32)  # one of padding
  weight = np.append(np.ones(len(ids) - 1, np.float32), 0)
  return book.charge(ids, weight, up, down)


def test_who_was_away_pays_for_what_was_missed_but_no_more_than_dense():
  book = ledger.Ledger.empty(3, DENSE)
  assert charge(book, [0, 1])['downlink_bytes'] == 40
  assert charge(book, [0])['downlink_bytes'] == 40
  # Client 1 missed one broadcast of 40, client 2 two: 120 > 100.
  row = charge(book, [0, 1, 2])
  assert row['downlink_bytes'] == (40 + 80 + 100) / 3
  assert row['total_downlink_bytes'] == 80 + 40 + 220
  assert row['total_uplink_bytes'] == (2 + 1 + 3) * UP


def test_dense_broadcasts_cost_a_participant_the_dense_parameters():
  book = ledger.Ledger.empty(3, DENSE)
  rows = [charge(book, ids, down=DENSE) for ids in ([0], [1], [0, 2])]
  assert [row['downlink_bytes'] for row in rows] == [DENSE] * 3


def test_an_empty_round_costs_the_clients_nothing():
  row = charge(ledger.Ledger.empty(3, DENSE), [])
  assert set(row.values()) == {0}


def test_totals_are_exact_past_31_and_63_bits():
  book = ledger.Ledger.empty(3, 2**31)
  row = {}
  for _ in range(5):
    row = charge(book, [0, 1, 2], up=2**31 - 1, down=2**31 - 1)
  assert row['total_uplink_bytes'] == 15 * (2**31 - 1)
  assert row['total_downlink_bytes'] == 15 * (2**31 - 1)
  book.uplink_total = 2**63
  assert charge(book, [0])['total_uplink_bytes'] == 2**63 + UP


def test_totals_restore_a_ledger():
  book = ledger.Ledger.empty(3, DENSE)
  charge(book, [0])
  again = ledger.Ledger(DENSE, book.heard.copy(), **book.totals())
  assert charge(again, [0, 1]) == charge(book, [0, 1])
