"""The hub of sites that exchange outer steps: it closes rounds, and keeps them.

Sites train by themselves and send what they have moved by, compressed. The hub
decides whose payloads a round has, sends them to all sites, and appends them to
a log. It computes nothing: each site applies the same payloads in the same
order, so that all have the same parameters to the last bit, and so has whoever
replays the log. Messages travel by ZeroMQ.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import struct
import threading
import time
import zlib

from fl_sketch.sites import wire
from fl_sketch.utils import checks, extras, files, progress

# Of sites: their run and the round they need next; a payload; that they are
# there, and the round they need next; the parameters and states of a round;
# that they leave.
JOIN, PAYLOAD, ALIVE, STATE, LEAVE = b'J', b'P', b'A', b'S', b'L'
# Of the hub, with STATE: the payloads of a closed round; the open round, and
# whether it has the site's payload; requests for STATE and to join again; a
# refusal, a text. In place of what a site has just sent it gets the `mark`.
ROUND, OPEN, WANTED, UNKNOWN, REFUSED = b'R', b'O', b'W', b'U', b'X'
ROUND_NUMBER = struct.Struct('<i')
OPEN_ROUND = struct.Struct('<i?')
_SIZE = struct.Struct('<I')
LOG, SNAPSHOT, RUN = 'rounds.bin', 'state.bin', 'run.bin'
_AT_ONCE = 50  # rounds that travel before a site says that it has them


def mark(message: bytes) -> bytes:
  """Return the bytes that stand for a message which the other side has."""
  return _SIZE.pack(zlib.crc32(message))


@dataclasses.dataclass
class _Member:
  heard: float  # seconds of `time.monotonic`
  sent: int = -1  # the last round that was sent to it
  needed: int = -1  # the round that it asked for last
  asked: float = 0.0  # when it first asked for that


class Log:
  """The payloads of all closed rounds, in a file that only grows.

  A round is the number of its payloads, then the size and the bytes of each, by
  the numbers of the sites. What a killed hub has half written is cut off.
  """

  def __init__(self, path: pathlib.Path):
    self._path, self._starts = path, []
    path.touch()
    raw, at = path.read_bytes(), 0
    while (end := _end_of_round(raw, at)) is not None:
      self._starts.append(at)
      at = end
    with path.open('r+b') as file:
      file.truncate(at)

  def __len__(self) -> int:
    return len(self._starts)

  def __getitem__(self, number: int) -> list[bytes]:
    """Return the messages with the payloads of a round."""
    at = self._starts[number]  # IndexError beyond the last one
    with self._path.open('rb') as file:
      file.seek(at)
      read = lambda: _SIZE.unpack(file.read(_SIZE.size))[0]
      return [file.read(read()) for _ in range(read())]

  def append(self, messages: Sequence[bytes]):
    """Add a round."""
    parts = [_SIZE.pack(len(messages))]
    for message in messages:
      parts += _SIZE.pack(len(message)), message
    with files.save_errors(self._path), self._path.open('ab') as file:
      self._starts.append(file.tell())
      file.write(b''.join(parts))


def _end_of_round(raw: bytes, at: int) -> int | None:
  """Return where the round that begins at `at` ends; None: it is not whole."""
  left = None
  while left != 0:
    if at + _SIZE.size > len(raw):
      return None
    (number,) = _SIZE.unpack_from(raw, at)
    at += _SIZE.size
    if left is None:
      left = number
    else:
      at, left = at + number, left - 1
  return at if at <= len(raw) else None


class Hub:
  """Closes rounds of the sites that are there; `serve` runs until `stop`.

  A round ends when it has a payload of each site that took part in the round
  before and was heard of within `silence` seconds; at the latest `deadline`
  seconds after its first payload. The first round waits for `sites` payloads.
  Who comes later, or again, gets what it missed, and takes part from the first
  payload that arrives in time. The log in `folder` outlives the hub. With
  `keys`, a folder of certificates of ZeroMQ, messages are encrypted:
  hub.key_secret is the hub's, and sites/*.key are of whom it answers.

  ValueError: a count is not positive; MissingExtraError: there is no pyzmq.
  """

  def __init__(
    self, address: str, folder: pathlib.Path, *, sites: int = 1,
    silence: float = 3.0, deadline: float = 60.0, snapshot_every: int = 100,
    keys: pathlib.Path | None = None,
  ):  # fmt: skip
    checks.count('sites', sites)
    checks.count('snapshot_every', snapshot_every)
    with extras.needed('hosted'):
      import zmq
      import zmq.auth.thread
    folder.mkdir(parents=True, exist_ok=True)
    self._folder, self._sites = folder, sites
    self._silence, self._deadline = silence, deadline
    self._snapshot_every = snapshot_every
    self.log = Log(folder / LOG)
    run = folder / RUN
    self._run = run.read_bytes() if run.exists() else None
    self._members: dict[bytes, _Member] = {}
    self._payloads: dict[bytes, bytes] = {}  # of the open round
    self._took_part: set[bytes] = set()  # in the last round
    self._first_at = 0.0  # when the first payload of the round came
    self._stopped = threading.Event()
    self._context = zmq.Context()
    self._guard = None
    self._socket = self._context.socket(zmq.ROUTER)
    if keys is not None:
      self._guard = zmq.auth.thread.ThreadAuthenticator(self._context)
      self._guard.start()
      self._guard.configure_curve(domain='*', location=keys / 'sites')
      own = zmq.auth.load_certificate(keys / 'hub.key_secret')
      self._socket.curve_publickey, self._socket.curve_secretkey = own
      self._socket.curve_server = True
    # Who comes again takes over the address of the connection that was cut.
    self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    self._socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
    self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * silence))
    self._socket.setsockopt(zmq.LINGER, 0)
    self._socket.bind(address)
    self.address = self._socket.get_string(zmq.LAST_ENDPOINT)

  def stop(self):
    """End `serve`."""
    self._stopped.set()

  def serve(self):
    """Answer the sites."""
    try:
      while not self._stopped.is_set():
        if self._socket.poll(20):
          self._hear(*self._socket.recv_multipart())
        if self._is_due():
          self._close_round()
    finally:
      self._socket.close()
      if self._guard is not None:
        self._guard.stop()
      self._context.term()

  def _hear(self, site, *frames):
    """Answer a message; refuse what is none."""
    try:
      self._answer(site, *frames)
    except (TypeError, ValueError, struct.error) as e:
      self._send(site, REFUSED, f'The message is malformed: {e}.'.encode())

  def _answer(self, site, kind, *frames):
    now = time.monotonic()
    if kind == JOIN:
      run, needed = frames
      if self._run is None:
        files.write(self._folder / RUN, run)
        self._run = run
      if run != self._run:
        text = 'The hub has another run: parameters or options differ.'
        self._send(site, REFUSED, text.encode())
        return
      member = self._members[site] = _Member(now, asked=now)
      self._catch_up(site, member, *ROUND_NUMBER.unpack(needed))
    elif kind == LEAVE:
      self._members.pop(site, None)
      return
    elif (member := self._members.get(site)) is None:
      self._send(site, UNKNOWN)  # of an earlier hub
      return
    member.heard = now
    if kind == PAYLOAD:
      self._take(site, *frames)
    elif kind == STATE:
      wire.decode_reply(frames[0])  # raises PayloadError
      files.write(self._folder / SNAPSHOT, frames[0])
    elif kind == ALIVE:
      (needed,) = ROUND_NUMBER.unpack(frames[0])
      if needed != member.needed:
        member.needed, member.asked = needed, now
      # Again only what was lost: nothing has arrived for a while.
      if needed > member.sent or now - member.asked > self._silence:
        self._catch_up(site, member, needed)
        member.asked = now
    has = site in self._payloads
    self._send(site, OPEN, OPEN_ROUND.pack(len(self.log), has))

  def _take(self, site, message):
    """Store a site's payload if it is of the open round."""
    reply = wire.decode_reply(message)  # raises PayloadError
    if reply.run != self._run or b'%d' % reply.client != site:
      self._send(site, REFUSED, b'The payload is of another run or site.')
    elif reply.round == len(self.log) and site not in self._payloads:
      if not self._payloads:
        self._first_at = time.monotonic()
      self._payloads[site] = message

  def _catch_up(self, site, member, needed):
    """Send the rounds that a site lacks, from a snapshot on if it has none."""
    snapshot = self._folder / SNAPSHOT
    if needed < 0 and snapshot.exists():
      message = snapshot.read_bytes()
      self._send(site, STATE, message)
      needed = wire.decode_reply(message).round
    needed = max(needed, 0)
    for number in range(needed, min(needed + _AT_ONCE, len(self.log))):
      self._send_round(site, member, number, self.log[number])

  def _send_round(self, site, member, number, messages):
    self._send(site, ROUND, ROUND_NUMBER.pack(number), *messages)
    member.sent = number

  def _is_due(self) -> bool:
    if not self._payloads:
      return False
    if not len(self.log):
      return len(self._payloads) >= self._sites
    here = {s for s, member in self._members.items() if self._is_heard(member)}
    late = time.monotonic() - self._first_at > self._deadline
    return late or self._took_part & here <= self._payloads.keys()

  def _is_heard(self, member) -> bool:
    return time.monotonic() - member.heard < self._silence

  def _close_round(self):
    order = sorted(self._payloads, key=int)
    number = len(self.log)
    payloads, self._payloads = self._payloads, {}
    self.log.append([payloads[site] for site in order])
    self._took_part = set(order)
    for site, member in self._members.items():
      if member.sent == number - 1 and self._is_heard(member):
        messages = [
          mark(payloads[of]) if of == site else payloads[of] for of in order
        ]
        self._send_round(site, member, number, messages)
    if (number + 1) % self._snapshot_every == 0:
      self._send(order[0], WANTED)
    progress.note(f'round {number}: sites {b", ".join(order).decode()}')

  def _send(self, site, *frames):
    self._socket.send_multipart([site, *frames])
