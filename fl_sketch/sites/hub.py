"""The hub of sites that exchange outer steps: it closes rounds, and keeps them.

Sites train by themselves and send what they have moved by, compressed. The hub
decides whose payloads a round has, sends them to all sites, and appends them to
a log. It computes nothing: each site applies the same payloads in the same
order, so that all have the same parameters to the last bit, and so has whoever
replays the log. Messages travel by ZeroMQ.
"""

from collections.abc import Sequence
import dataclasses
import functools
import os
import pathlib
import struct
import threading
import time
import zlib

from fl_sketch.sites import wire
from fl_sketch.utils import checks, extras, files, progress
import msgpack

# Of sites: that they are there, with their run, the round they need next, the
# last of which they have sent a payload, and the `digest` of the round before
# the former; the same, where rounds were lost on the way; a payload; parameters
# and states before a round, whose incarnation is that digest; that they leave.
ALIVE, AGAIN, PAYLOAD, STATE, LEAVE = b'A', b'G', b'P', b'S', b'L'
# Of the hub, with STATE: the payloads of a closed round, a site's own as its
# `mark`; the answer to ALIVE, the open round and the last that was sent to the
# site; that a payload was lost; a request for STATE; a refusal, a text.
ROUND, OPEN, LOST, WANTED, REFUSED = b'R', b'O', b'M', b'W', b'X'
NUMBER, TWO_NUMBERS, THERE = map(struct.Struct, ('<i', '<ii', '<iiI'))
OF_STATES = b'/states'  # after a site's name: its connection for STATE
_MARK = struct.Struct('<I')
LOG, SNAPSHOT, RUN = 'rounds.bin', 'state.bin', 'run.bin'
_AT_ONCE = 50  # rounds that travel before a site says that it has them
_FRAME = 2**16  # bytes


def mark(message: bytes) -> bytes:
  """Return the bytes that stand for a message which the other side has."""
  return _MARK.pack(zlib.crc32(message))


def digest(messages: Sequence[bytes]) -> int:
  """Return a number by which the payloads of a round are known."""
  return functools.reduce(lambda crc, x: zlib.crc32(x, crc), messages, 0)


def split(message: bytes) -> list[bytes]:
  """Return the frames of a message, to be joined by who gets it.

  ZeroMQ takes the other side for gone when no whole frame comes in time.
  """
  return [message[i : i + _FRAME] for i in range(0, len(message), _FRAME)]


@dataclasses.dataclass
class _Member:
  heard: float  # seconds of `time.monotonic`
  sent: int = -2  # the last round that was sent to it; -2: nothing
  late: int | None = None  # rounds that were closed when its payload came


class Log:
  """The payloads of all closed rounds, in a file that only grows.

  A round is a list of MessagePack with its payloads, by the numbers of the
  sites. What a killed hub has half written is no round, and `append` cuts it
  off: who only reads may do so while a hub writes.
  """

  def __init__(self, path: pathlib.Path):
    self._path = path
    with path.open('rb') as file:
      rounds = _unpacker(file)
      self._starts = [0, *(rounds.tell() for _ in rounds)]
      self._end = self._starts.pop()
    # By number; sites say it at every beat.
    self.digest = functools.lru_cache(16)(lambda n: digest(self[n]))

  def __len__(self) -> int:
    return len(self._starts)

  def __getitem__(self, number: int) -> list[bytes]:
    """Return the messages with the payloads of a round."""
    at = self._starts[number]  # IndexError beyond the last one
    with self._path.open('rb') as file:
      file.seek(at)
      return _unpacker(file).unpack()

  def append(self, messages: Sequence[bytes]):
    """Add a round; it is on the disk when this returns."""
    with files.save_errors(self._path), self._path.open('ab') as file:
      file.truncate(self._end)
      msgpack.pack([*messages], file)
      file.flush()
      os.fsync(file.fileno())
      self._starts.append(self._end)
      self._end = file.tell()


def _unpacker(file) -> msgpack.Unpacker:
  return msgpack.Unpacker(file, max_buffer_size=0)  # 0: as large as it can


class Hub:
  """Closes rounds of the sites that are there; `serve` runs until `stop`.

  A round ends when it has a payload of each site that took part in the round
  before and was heard of within `silence` seconds; at the latest `deadline`
  seconds after the first payload of such a site. The first round waits for
  `sites` payloads. Who comes later, or again, gets what it missed, and takes
  part from its first payload on: if that comes late, rounds wait for the site
  once it has those closed until then. The log in `folder` outlives the hub;
  sites that have rounds which it lacks are refused. A payload must travel in
  less than `silence` seconds.
  With `keys`, a folder of certificates of ZeroMQ, messages are encrypted:
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
    folder.mkdir(parents=True, exist_ok=True)
    self._folder, self._sites = folder, sites
    self._silence, self._deadline = silence, deadline
    self._snapshot_every = snapshot_every
    (folder / LOG).touch()
    self.log = Log(folder / LOG)
    run = folder / RUN
    self._run = run.read_bytes() if run.exists() else None
    self._payloads: dict[bytes, bytes] = {}  # of the open round
    self._first_at = 0.0  # when the first payload of the round came
    last = self.log[len(self.log) - 1] if len(self.log) else []
    self._took_part = {b'%d' % wire.decode_reply(x).client for x in last}
    now = time.monotonic()  # who took part before a restart may be there
    self._members = {site: _Member(now) for site in self._took_part}
    self._turn = now  # when the last turn of the loop ended
    self._stopped = threading.Event()
    self._listen(address, keys)

  def _listen(self, address, keys):
    with extras.needed('hosted'):
      import zmq
      import zmq.auth.thread
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
    self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * self._silence))
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
        self._excuse_silence()
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
    site = site.removesuffix(OF_STATES)
    if kind in (ALIVE, AGAIN):
      self._meet(site, kind == AGAIN, *frames)
    elif kind == LEAVE:
      self._members.pop(site, None)
    elif (member := self._members.get(site)) is not None:
      member.heard = time.monotonic()
      message = b''.join(frames)
      reply = wire.decode_reply(message)  # raises PayloadError
      if reply.run != self._run or b'%d' % reply.client != site:
        self._send(site, REFUSED, b'The message is of another run or site.')
      elif kind == STATE:
        files.write(self._folder / SNAPSHOT, message, durable=True)
      elif reply.round == len(self.log) and site not in self._payloads:
        if not self._payloads:
          self._first_at = time.monotonic()
        self._payloads[site] = message
      elif reply.round < len(self.log):
        member.late = member.late or len(self.log)

  def _meet(self, site, is_again, run, numbers):
    """Answer a site that says that it is there, and send what it lacks."""
    needed, posted, last = THERE.unpack(numbers)
    if self._run is None:
      files.write(self._folder / RUN, run, durable=True)
      self._run = run
    if run != self._run:
      text = 'The hub has another run: parameters or options differ.'
      self._send(site, REFUSED, text.encode())
      return
    lacks = needed > len(self.log)
    if lacks or (needed > 0 and last != self.log.digest(needed - 1)):
      self._send(site, REFUSED, b'The hub lacks rounds that this site has.')
      return
    now = time.monotonic()
    member = self._members.setdefault(site, _Member(now))
    member.heard = now
    if posted < 0:  # a new start: the others do not wait for its first payload
      self._took_part.discard(site)
      member.late = None
    elif member.late and needed >= member.late:
      self._took_part.add(site)
      member.late = None
    if max(needed, 0) > member.sent or is_again:
      self._catch_up(site, member, needed)
    if posted == len(self.log) and site not in self._payloads:
      self._send(site, LOST)
    self._send(site, OPEN, TWO_NUMBERS.pack(len(self.log), member.sent))

  def _catch_up(self, site, member, needed):
    """Send the rounds that a site lacks, from a snapshot on if it has none."""
    snapshot = self._folder / SNAPSHOT
    if needed < 0 and snapshot.exists():
      message = snapshot.read_bytes()
      self._send(site, STATE, *split(message))
      needed = wire.decode_reply(message).round
    needed = max(needed, 0)
    member.sent = needed - 1
    for number in range(needed, min(needed + _AT_ONCE, len(self.log))):
      self._send_round(site, member, number, self.log[number])

  def _send_round(self, site, member, number, messages):
    self._send(site, ROUND, NUMBER.pack(number), *messages)
    member.sent = number

  def _excuse_silence(self):
    """Extend all deadlines by a pause in which the hub itself stood still."""
    now = time.monotonic()
    gap, self._turn = now - self._turn, now
    if gap > 1:
      self._first_at += gap
      for member in self._members.values():
        member.heard = min(member.heard + gap, now)

  def _is_due(self) -> bool:
    if not self._payloads:
      return False
    if not len(self.log):
      return len(self._payloads) >= self._sites
    if not self._took_part & self._payloads.keys():
      self._first_at = time.monotonic()  # it is early: the others are not late
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
    if self._took_part != {*order}:
      names = b', '.join(order).decode()
      progress.note(f'From round {number} on: sites {names}.')
    self._took_part = {*order}
    for site, member in self._members.items():
      if member.sent == number - 1 and self._is_heard(member):
        messages = [
          mark(payloads[of]) if of == site else payloads[of] for of in order
        ]
        self._send_round(site, member, number, messages)
    if (number + 1) % self._snapshot_every == 0:
      self._send(order[0], WANTED)

  def _send(self, site, *frames):
    self._socket.send_multipart([site, *frames])
