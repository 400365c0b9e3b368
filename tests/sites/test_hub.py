"""What a hub and a mailbox send, message by message; when a round ends."""

import contextlib
import os
import threading
import types
from typing import Any

from fl_sketch.sites import hub, mailbox, wire
import numpy as np
import pytest

RUN = bytes(16)


@contextlib.contextmanager
def standing(folder, **options):
  """A hub that does not serve: (hub, what it sends)."""
  made: Any = hub.Hub('tcp://127.0.0.1:*', folder, **options)
  sent = []
  made._send = lambda *frames: sent.append(frames)
  try:
    yield made, sent
  finally:
    made._socket.close()
    made._context.term()


def payload(site, number):
  return wire.encode_reply(
    {'x': np.ones(2)}, run=RUN, round_index=number, client_id=site
  )


def say(made, site, needed, posted, digest=None):
  if digest is None:  # that of the hub's log
    digest = made.log.digest(needed - 1) if needed > 0 else 0
  numbers = hub.THERE.pack(needed, posted, digest)
  made._answer(b'%d' % site, hub.ALIVE, RUN, numbers)


def post(made, site, number):
  made._answer(b'%d' % site, hub.PAYLOAD, payload(site, number))


def close(made, *sites):
  """Sites post, and their round is closed."""
  number = len(made.log)
  for site in sites:
    post(made, site, number)
  assert made._is_due()
  made._close_round()


def test_reading_a_log_leaves_what_a_hub_writes(tmp_path):
  """Catches a replay that cuts away a round which is being written."""
  path = tmp_path / 'log'
  path.touch()
  log = hub.Log(path)
  log.append([b'first'])
  with path.open('ab') as file:
    file.write(b'\x91\xc4\x09half')
  torn = path.read_bytes()
  assert len(hub.Log(path)) == 1
  assert path.read_bytes() == torn
  log.append([b'second'])  # over the half round
  assert [*hub.Log(path)] == [*log] == [[b'first'], [b'second']]
  with pytest.raises(FileNotFoundError):
    hub.Log(tmp_path / 'other')


def test_a_round_is_on_the_disk_before_it_is_sent(tmp_path, monkeypatch):
  """Catches a hub that lacks after a power cut what its sites have applied."""
  with standing(tmp_path) as (made, sent):
    say(made, 0, -1, -1)
    size = lambda: (tmp_path / hub.LOG).stat().st_size
    sync = lambda _: events.append((size(), [x[1] for x in sent]))
    monkeypatch.setattr(os, 'fsync', sync)
    events = []
    close(made, 0)
    ((written, kinds),) = events
    assert written == size() > 0
    assert hub.ROUND not in kinds
    assert sent[-1][1] == hub.ROUND


def test_a_hub_that_lacks_rounds_refuses_the_site(tmp_path):
  """Catches a site that waits for ever, then applies another history."""
  with standing(tmp_path) as (made, sent):
    say(made, 0, 3, 3, digest=7)
    say(made, 1, -1, -1)
    close(made, 1)
    say(made, 0, 1, 0, digest=7)  # of another round 0
    for frames in sent[0], sent[-1]:
      assert frames[1] == hub.REFUSED
      assert b'lacks rounds' in frames[2]


def test_who_was_away_in_the_first_round_gets_it(tmp_path, monkeypatch):
  """Catches a site that nobody tells of any round, for ever."""
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(hub, 'time', clock)
  with standing(tmp_path) as (made, sent):
    for site in 0, 1:
      say(made, site, -1, -1)
    now[0] += 4.0
    say(made, 0, -1, -1)
    close(made, 0)
    close(made, 0)
    say(made, 1, -1, -1)
    rounds = [x[2] for x in sent if x[:2] == (b'1', hub.ROUND)]
    assert rounds == [hub.NUMBER.pack(0), hub.NUMBER.pack(1)]


def test_who_is_early_does_not_hurry_the_others(tmp_path, monkeypatch):
  """Catches sites out of phase whose rounds have one payload each."""
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(hub, 'time', clock)
  with standing(tmp_path, deadline=60.0) as (made, _):

    def later(seconds):
      now[0] += seconds
      for site in 0, 1:
        say(made, site, len(made.log), 0)

    for site in 0, 1:
      say(made, site, -1, -1)
    close(made, 0)
    post(made, 1, 1)  # site 1 took no part in round 0
    later(500)
    assert not made._is_due()
    post(made, 0, 1)
    assert made._is_due()
    made._close_round()
    post(made, 0, 2)
    later(61)
    assert made._is_due()  # site 1 took part, and is late


def test_a_round_does_not_wait_for_a_site_that_starts_again(tmp_path):
  """Catches survivors that stand still while a killed site catches up."""
  with standing(tmp_path, sites=2) as (made, _):
    for site in 0, 1:
      say(made, site, -1, -1)
    close(made, 0, 1)
    post(made, 0, 1)
    say(made, 1, 1, 0)
    assert not made._is_due()
    say(made, 1, -1, -1)
    assert made._is_due()


def test_rounds_wait_for_a_late_site_once_it_has_what_it_missed(tmp_path):
  """Catches a site that stays out for ever, and others that wait too long."""
  with standing(tmp_path, sites=1) as (made, _):
    for site in 0, 1:
      say(made, site, -1, -1)
    for _ in range(3):
      close(made, 0)  # without site 1
    post(made, 1, 1)  # too late
    post(made, 0, 3)
    say(made, 1, 2, 1)
    assert made._is_due()  # not while rounds travel to it
    say(made, 1, 3, 1)
    assert not made._is_due()
    post(made, 1, 3)
    assert made._is_due()


def test_a_hub_that_stood_still_waits_for_its_sites(tmp_path, monkeypatch):
  """Catches a round that is closed before what has arrived is heard."""
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(hub, 'time', clock)
  with standing(tmp_path, sites=2) as (made, _):
    for site in 0, 1:
      say(made, site, -1, -1)
    close(made, 0, 1)
    post(made, 0, 1)
    gaps, numbers = [100.0, 0.02], hub.THERE.pack(1, 1, made.log.digest(0))

    def poll(_):  # in the first one the hub stands still; a message waits then
      now[0] += (gap := gaps.pop(0))
      if not gaps:
        made.stop()
      return gap > 1

    made._socket = types.SimpleNamespace(
      poll=poll, close=made._socket.close,
      recv_multipart=lambda: [b'0', hub.ALIVE, RUN, numbers],
    )  # fmt: skip
    made.serve()
    assert len(made.log) == 1
    now[0] += 2 * 3.0
    assert made._is_due()


@contextlib.contextmanager
def mailbox_at(address):
  mail: Any = mailbox.Mailbox(address, 0, RUN, 3.0, 9.0, None)
  try:
    yield mail
  finally:
    mail.close()


@contextlib.contextmanager
def router_at(address):
  """A socket of ZeroMQ where a hub would have its own."""
  zmq = pytest.importorskip('zmq')
  with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
    socket.setsockopt(zmq.RCVTIMEO, 10_000)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)
    yield socket


def test_nothing_queues_without_a_connection(tmp_path):
  """Catches old beats that come at once, each answered by a lost payload."""
  zmq = pytest.importorskip('zmq')
  address = f'ipc://{tmp_path}/hub'
  with mailbox_at(address) as mail:
    for _ in range(9):
      mail._say(hub.ALIVE)
    with router_at(address) as router:
      assert mail._socket.poll(20_000, zmq.POLLOUT)
      mail._send(b'last')
      assert router.recv_multipart() == [b'0', b'last']


def test_beats_go_on_while_a_payload_is_computed(tmp_path, monkeypatch):
  """Catches a site that looks silent as long as a train step computes."""
  monkeypatch.setattr(mailbox, '_HEARTBEAT', 0.0)
  done = threading.Event()

  class Late:
    """An array as of JAX, whose bytes are there when it is computed."""

    shape, dtype = (2,), np.dtype(np.float32)
    is_ready = lambda self: done.is_set()

    def __array__(self, *_):
      assert done.wait(20)
      return np.ones(self.shape, self.dtype)

  address = f'ipc://{tmp_path}/hub'
  with router_at(address) as router, mailbox_at(address) as mail:
    mail.send(0, {'x': Late()})
    mail.join(-1)
    try:
      kinds = [router.recv_multipart()[1] for _ in range(3)]
    finally:
      done.set()
    assert kinds == [hub.ALIVE] * 3
    while router.recv_multipart()[1] != hub.PAYLOAD:
      pass


def test_states_have_a_connection_of_their_own(tmp_path):
  """Catches a site that looks silent while its state travels."""
  zmq = pytest.importorskip('zmq')
  with router_at(f'ipc://{tmp_path}/hub') as router:
    with mailbox_at(f'ipc://{tmp_path}/hub') as mail:
      assert mail._states.poll(20_000, zmq.POLLOUT)
      mail._post(hub.STATE, 2, {'x': np.ones(2)}, 0)
      frames = router.recv_multipart()
  with standing(tmp_path) as (made, _):
    say(made, 0, -1, -1)
    made._answer(*frames)
    assert (tmp_path / hub.SNAPSHOT).exists()
  assert frames[0] != b'0'


def test_long_messages_travel_in_frames(tmp_path):
  """Catches a link that ZeroMQ cuts while one long frame travels."""
  state = {'x': np.arange(2**16, dtype=np.float32)}
  with mailbox_at('tcp://127.0.0.1:1') as mail:
    sent, mail._send = [], lambda *frames: sent.append(frames)
    mail._post(hub.STATE, 2, state, 0)
    ((_, *up),) = sent
    with standing(tmp_path) as (made, answers):
      say(made, 0, -1, -1)
      made._answer(b'0', hub.STATE, *up)
      for _ in range(3):
        close(made, 0)
      say(made, 1, -1, -1)
      (down,) = [x[2:] for x in answers if x[1] == hub.STATE]
    assert max(map(len, (*up, *down))) <= 2**16
    mail._hear(hub.STATE, *down)
    found = mail.take(0)
  assert found.number == 2
  assert found.is_state
  np.testing.assert_array_equal(
    wire.read_payload(wire.decode_reply(found.messages[0]), state)['x'],
    state['x'],
  )
