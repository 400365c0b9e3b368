"""The resident worker of a site, and the process that keeps it running.

The keeper has the socket, so that requests wait while a worker is started
again. It imports no JAX.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import fcntl
import logging
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time

from fl_sketch.sites import relay

_LOG = logging.getLogger(__name__)
_LONGEST = 107 if sys.platform == 'linux' else 103  # bytes of a socket's path
_DEATHS, _SOON = 5, 60.0  # seconds of a life
_DELAY, _PAUSE, _GRACE = 0.25, 0.2, 10.0  # seconds
_PATIENCE = 60.0  # seconds that a half-sent message may block the worker
_FILES = 'FL_SKETCH_WORKER'  # descriptors that a worker gets of its keeper
_READY, _ANSWERED = b'\n', b'!'  # what a worker tells its keeper
_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class SiteError(ValueError):
  """The socket of a site cannot be used."""


@contextlib.contextmanager
def listening(path: str | os.PathLike) -> Iterator[socket.socket]:
  """Listen on a unix socket, in place of one that a dead process left.

  Raises SiteError if the path is too long, others can use its folder, or
  another process has the socket.
  """
  path = pathlib.Path(path).absolute()
  if (size := len(os.fsencode(path))) > _LONGEST:
    raise SiteError(
      f'{path} has {size} bytes, the path of a unix socket at most {_LONGEST}; '
      'use a shorter folder.'
    )
  path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  if path.parent.stat().st_mode & 0o077:
    raise SiteError(
      f'Others can use {path.parent}, which has private state; run '
      f'`chmod 700 {path.parent}`.'
    )
  # Locked until the end of the process, whatever ends it.
  with open(path.with_suffix('.lock'), 'w') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise SiteError(
        f'Another process is the site of {path.parent}; end it, or use another '
        'folder.'
      ) from None
    path.unlink(missing_ok=True)
    try:
      with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        yield listener
    finally:
      path.unlink(missing_ok=True)


def serve(
  handle: Callable[[bytes], bytes],
  listener: socket.socket,
  answered: Callable[[], object] = lambda: None,
):
  """Answer requests on a socket, one after the other, without an end.

  A request that is cut off, or too large, ends its connection alone. `handle`
  is request -> reply; `answered` is called after every reply.
  """
  while True:
    connection, _ = listener.accept()
    with connection:
      connection.settimeout(_PATIENCE)
      try:
        request = relay.read(connection)
      except (OSError, MemoryError) as e:
        _LOG.warning('A request is left out: %r', e)
        continue
      reply = handle(request)
      with contextlib.suppress(OSError):  # who asked has gone, and asks again
        relay.write(connection, reply)
        answered()


def is_worker() -> bool:
  """Return whether `keep` has started this process."""
  return _FILES in os.environ


def serve_keeper(handle: Callable[[bytes], bytes], greeting: str):
  """Answer requests in a process that `keep` has started; end with it.

  The keeper prints the greeting, a line, of its first worker.
  """
  fds = map(int, os.environ.pop(_FILES).split(','))
  listener, channel = (socket.socket(fileno=fd) for fd in fds)

  def end_with_keeper():
    # Until the keeper ends; an error if it has left words of ours unread.
    with contextlib.suppress(OSError):
      channel.recv(1)
    os._exit(0)

  threading.Thread(target=end_with_keeper, daemon=True).start()
  channel.sendall(greeting.encode() + _READY)
  serve(handle, listener, lambda: channel.sendall(_ANSWERED))


class _Worker:
  """A worker process, and what it has said so far."""

  def __init__(self, command: Sequence[str], listener: socket.socket):
    self.channel, theirs = socket.socketpair()
    with theirs:
      fds = listener.fileno(), theirs.fileno()
      env = {_FILES: ','.join(map(str, fds))}
      self.process = _start(command, env, pass_fds=fds)
    self.said, self.began = b'', time.monotonic()

  def runs(self) -> bool:
    """Wait shortly for a message of the worker; return whether it runs."""
    if not select.select([self.channel], [], [], _PAUSE)[0]:
      return self.process.poll() is None
    self.said += (new := self.channel.recv(2**16))
    return bool(new)

  def end(self) -> int:
    """End the worker; return its exit status, -N of signal N."""
    self.channel.close()
    return _end(self.process)


def keep(
  command: Sequence[str], engine: Sequence[str], path: str | os.PathLike
) -> int:
  """Run a worker, and the client of an engine beside it, until that ends.

  A worker that dies is started again. SIGTERM and Ctrl-C end both. `command`
  starts a process that calls `serve_keeper`; `engine`, which may be empty, the
  client, which finds the socket, as of `listening`, in FL_SKETCH_SITE.

  Returns the exit status: the client's; or the worker's, if the first one never
  served; or 1, if workers die again and again without an answer.
  """
  for number in _SIGNALS:
    signal.signal(number, _stop)
  with listening(path) as listener, contextlib.ExitStack() as ends:
    status = _keep(command, engine, listener, ends)
    return status if status >= 0 else 128 - status


def _keep(command, engine, listener, ends) -> int:
  worker, client, greeted, deaths = _Worker(command, listener), None, False, 0
  ends.callback(lambda: worker.end())  # whichever is the last
  while client is None or client.poll() is None:
    runs = worker.runs()
    greeting, ready, answers = worker.said.partition(_READY)
    if ready and not greeted:
      greeted = True
      print(greeting.decode(), flush=True)
      if engine:
        client = _start(engine, {relay.VARIABLE: listener.getsockname()})
        ends.callback(_end, client)
        ends.callback(_end, _watch(client))
    if runs:
      continue
    soon = not answers and time.monotonic() - worker.began < _SOON
    status, deaths = worker.end(), deaths + 1 if soon else 0
    if not greeted and status >= 0:  # it has said why
      return status or 1
    how = f'status {status}' if status >= 0 else f'signal {-status}'
    if deaths == _DEATHS:
      print(f'{deaths} workers ended without an answer ({how}).', flush=True)
      return 1
    print(f'The worker ended ({how}); it is started again.', flush=True)
    time.sleep(_DELAY * 2**deaths)
    worker = _Worker(command, listener)
  return client.returncode


def _start(command, env, **options) -> subprocess.Popen:
  # Not in the group of the terminal, whose Ctrl-C is for the keeper.
  options |= {'env': os.environ | env, 'start_new_session': True}
  return subprocess.Popen(command, **options)


def _watch(process: subprocess.Popen) -> subprocess.Popen:
  """Start a shell that ends a process and its group when this one is gone.

  Even SIGKILL closes the pipe from which it reads.
  """
  command = 'sh', '-c', 'read line; kill -s TERM -- "-$0"', f'{process.pid}'
  return _start(command, {}, stdin=subprocess.PIPE)


def _end(process: subprocess.Popen) -> int:
  """End a process and its group: by SIGTERM, and later by SIGKILL."""
  last = time.monotonic() + _GRACE
  for number in (signal.SIGTERM, signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(process.pid, number)
      while time.monotonic() < last:
        process.poll()
        os.killpg(process.pid, 0)
        time.sleep(0.02)
  return process.wait()


def _stop(number, _):
  for other in _SIGNALS:  # until everything has ended
    signal.signal(other, signal.SIG_IGN)
  sys.exit(128 + number)
