"""A site's connection to the hub, which a thread of its own keeps."""

import collections
from collections.abc import Sequence
import contextlib
import math
import pathlib
import queue
import threading
import time
from typing import Any, NamedTuple

from fl_sketch.sites import hub, wire
from fl_sketch.utils import extras
from fl_sketch.utils.types import Payload
import jax

_HEARTBEAT = 0.5  # seconds
_TICK = 10  # milliseconds


class Round(NamedTuple):
  """A closed round, or the state before one."""

  number: int
  messages: Sequence[bytes]  # with the payloads; with a state, one
  digest: int = 0  # of the payloads; with a state, of the round before
  has_own: bool = False  # whether the payload that was sent last is in it
  is_state: bool = False


class Mailbox:
  """Sends the payloads of a site; keeps closed rounds until they are taken."""

  def __init__(
    self, address: str, site: int, run: bytes, silence: float,
    patience: float, keys: pathlib.Path | None,
  ):  # fmt: skip
    with extras.needed('hosted'):
      import zmq
      import zmq.auth
    self._zmq: Any = zmq
    self._site, self._run, self._patience = site, run, patience
    self.open_round: int | None = None
    self.is_wanted = False  # whether the hub asks for the state
    self._needed, self._digest = -1, 0  # of the round before
    self._payload = -1, b''  # the last one: (round, message)
    self._heard = time.monotonic()
    self._out = collections.deque()  # of (kind, round, tree, digest)
    self._rounds: queue.SimpleQueue[Round | Exception] = queue.SimpleQueue()
    self._closed = threading.Event()
    self._socket = self._connected(address, b'%d' % site, silence, keys)
    # A state is long: heartbeats and payloads do not wait behind it.
    name = b'%d%s' % (site, hub.OF_STATES)
    self._states = self._connected(address, name, silence, keys)
    self._thread = threading.Thread(target=self._serve, daemon=True)

  def _connected(self, address, identity, silence, keys) -> Any:
    zmq = self._zmq
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    socket.setsockopt(zmq.LINGER, 1000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # queue only while connected
    for option in zmq.HEARTBEAT_TIMEOUT, zmq.CONNECT_TIMEOUT, zmq.HANDSHAKE_IVL:
      socket.setsockopt(option, round(1000 * silence))
    if keys is not None:
      own = zmq.auth.load_certificate(keys / 'site.key_secret')
      socket.curve_publickey, socket.curve_secretkey = own
      socket.curve_serverkey, _ = zmq.auth.load_certificate(keys / 'hub.key')
    socket.connect(address)
    return socket

  def join(self, needed: int, digest: int = 0):
    """Ask for the rounds from `needed` on; -1: and for a state before them.

    `digest` is that of the round before.
    """
    self._needed, self._digest = needed, digest
    self._thread.start()

  def send(self, number: int, payload: Payload):
    """Send the payload of a round, which may still be computed."""
    self._out.append((hub.PAYLOAD, number, payload, 0))

  def send_state(self, number: int, state: Any, digest: int):
    """Send the hub the parameters and optimizer states before a round."""
    self.is_wanted = False
    self._out.append((hub.STATE, number, state, digest))

  def take(self, timeout: float) -> Round | None:
    """Return the next closed round, or None after a timeout in seconds.

    TimeoutError: nothing has come from the hub for too long; ValueError: it
    has refused the site.
    """
    try:
      found = self._rounds.get(timeout=timeout)
    except queue.Empty:
      silent = time.monotonic() - self._heard
      if silent > self._patience:
        raise TimeoutError(f'The hub is silent for {silent:.0f} s.') from None
      return None
    if isinstance(found, Exception):
      raise found
    return found

  def close(self):
    """Send what waits, and leave."""
    self._closed.set()
    if self._thread.ident is None:  # it was never started
      self._close()
    else:
      self._thread.join()

  def _close(self):
    self._socket.close()
    self._states.close()

  def _serve(self):
    try:
      beat = -math.inf
      while not self._closed.is_set() or self._out:
        while self._out and _is_computed(self._out[0][2]):
          self._post(*self._out.popleft())
        is_due = time.monotonic() - beat > _HEARTBEAT
        if is_due and self._socket.poll(_TICK, self._zmq.POLLOUT):
          beat = time.monotonic()
          self._say(hub.ALIVE)
        if self._socket.poll(_TICK):
          self._hear(*self._socket.recv_multipart())
      self._send(hub.LEAVE)
    except Exception as e:  # the loop of the site raises it
      self._rounds.put(e)
    finally:
      self._close()

  def _say(self, kind):
    numbers = self._needed, self._payload[0], self._digest
    self._send(kind, self._run, hub.THERE.pack(*numbers))

  def _send(self, kind, *frames):
    socket = self._states if kind == hub.STATE else self._socket
    # Without a connection it is lost; the hub will ask again.
    with contextlib.suppress(self._zmq.Again):
      socket.send_multipart([kind, *frames], self._zmq.DONTWAIT)

  def _post(self, kind, number, tree, digest):
    message = wire.encode_reply(
      tree, run=self._run, round_index=number, client_id=self._site,
      incarnation=digest,
    )  # fmt: skip
    if kind == hub.PAYLOAD:
      self._payload = number, message
    self._send(kind, *hub.split(message))

  def _hear(self, kind, *frames):
    self._heard = time.monotonic()
    if kind == hub.ROUND:
      (number,) = hub.NUMBER.unpack(frames[0])
      own = self._payload[1]
      mark = hub.mark(own)
      messages = [own if x == mark else x for x in frames[1:]]
      # Not one that came before, nor one with a payload of an earlier start,
      # which comes again whole.
      is_whole = all(len(x) > len(mark) for x in messages)
      if number == max(self._needed, 0) and is_whole:
        self._needed, self._digest = number + 1, hub.digest(messages)
        self._rounds.put(Round(number, messages, self._digest, own in messages))
    elif kind == hub.STATE:
      state = wire.decode_reply(message := b''.join(frames))
      if state.round > self._needed:
        self._needed, self._digest = state.round, state.incarnation
        self._rounds.put(
          Round(state.round, [message], self._digest, is_state=True)
        )
    elif kind == hub.OPEN:
      self.open_round, sent = hub.TWO_NUMBERS.unpack(frames[0])
      if sent >= max(self._needed, 0):  # messages come in order: it was lost
        self._say(hub.AGAIN)
    elif kind == hub.LOST:
      self._send(hub.PAYLOAD, *hub.split(self._payload[1]))
    elif kind == hub.WANTED:
      self.is_wanted = True
    elif kind == hub.REFUSED:
      raise ValueError(frames[0].decode())


def _is_computed(tree) -> bool:
  """Return whether all arrays are computed: reading them does not block."""
  arrays = [x for x in jax.tree.leaves(tree) if hasattr(x, 'is_ready')]
  return all(x.is_ready() for x in arrays)
