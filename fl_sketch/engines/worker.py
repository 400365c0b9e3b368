"""The resident worker of a site, and the process that keeps it running.

The keeper (`keep`) has the socket, so that requests wait while a worker is
started again. It imports no JAX.
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

from fl_sketch.engines import relay

_LOG = logging.getLogger(__name__)
_PATIENCE = 60.0  # seconds that a half-sent message may block the worker
_LONGEST = 107 if sys.platform == 'linux' else 103  # bytes of a socket's path
_VARIABLE = 'FL_SKETCH_WORKER'  # file descriptors of socket and channel
_READY, _ANSWERED = b'\n', b'!'  # what the worker tells its keeper
_DEATHS, _SOON = 5, 60.0  # seconds
_DELAY, _PAUSE, _GRACE = 0.25, 0.2, 10.0  # seconds
_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class SiteError(ValueError):
  """The socket of a site cannot be used."""


@contextlib.contextmanager
def listening(path: str | os.PathLike) -> Iterator[socket.socket]:
  """Listens on a unix socket, in a folder that is the user's alone.

  A socket that a dead process left is replaced.

  Raises:
    SiteError: the path is too long, others can read the folder, or another
      process has the socket.
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
  # Held until the end of the process, whatever ends it.
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
  where: str | os.PathLike | socket.socket,
  answered: Callable[[], object] = lambda: None,
):
  """Answers requests on a socket, one after the other, without an end.

  A request that is cut off, or too large, ends its connection alone.

  Args:
    handle: request -> reply.
    where: a socket that listens, or the path of one to make, see `listening`.
    answered: called after every reply.
  """
  if not isinstance(where, socket.socket):
    with listening(where) as where:
      serve(handle, where, answered)
  while True:
    connection, _ = where.accept()
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


def serve_keeper(handle: Callable[[bytes], bytes], greeting: str):
  """Serves as a worker that `keep` has started; ends with its keeper.

  `greeting` is the line that the keeper prints of its first worker.
  """
  listener, channel = (
    socket.socket(fileno=int(number))
    for number in os.environ.pop(_VARIABLE).split(',')
  )

  def end_with_keeper():
    channel.recv(1)  # it sends nothing: this is the end of its file
    os._exit(0)

  threading.Thread(target=end_with_keeper, daemon=True).start()
  channel.sendall(greeting.encode() + _READY)
  said = []

  def answered():
    if not said:
      said.append(channel.sendall(_ANSWERED))

  serve(handle, listener, answered)


def is_worker() -> bool:
  """Whether `keep` has started this process."""
  return _VARIABLE in os.environ


class _Worker:
  """A worker process, and what it has said so far."""

  def __init__(self, command: Sequence[str], listener: socket.socket):
    self._channel, theirs = socket.socketpair()
    with theirs:
      fds = listener.fileno(), theirs.fileno()
      env = os.environ | {_VARIABLE: ','.join(map(str, fds))}
      # Not in the group of the terminal: Ctrl-C is for the keeper.
      self._process = subprocess.Popen(
        command, env=env, pass_fds=fds, start_new_session=True
      )
    self._said, self._began = b'', time.monotonic()

  def runs(self) -> bool:
    """Waits shortly for a word of it; returns whether it still runs."""
    if not select.select([self._channel], [], [], _PAUSE)[0]:
      return self._process.poll() is None
    new = self._channel.recv(2**16)
    self._said += new
    return bool(new)

  @property
  def greeting(self) -> str | None:
    """The line that it says once it serves; None before that."""
    line, ready, _ = self._said.partition(_READY)
    return line.decode() if ready else None

  @property
  def died_soon(self) -> bool:
    """Whether it, dead, lived shortly and answered nothing."""
    answered = self._said.partition(_READY)[2]
    return not answered and time.monotonic() - self._began < _SOON

  def end(self) -> int:
    """Ends it if it runs; returns its exit status, -N of a signal N."""
    self._channel.close()
    return _end(self._process)


def keep(
  command: Sequence[str], engine: Sequence[str], path: str | os.PathLike
) -> int:
  """Runs a worker, and beside it the client of an engine, until that ends.

  A worker that dies is started again; SIGTERM or Ctrl-C ends both.

  Args:
    command: starts a worker, a process that calls `serve_keeper`.
    engine: command of the engine's client, which finds the socket in
      FL_SKETCH_SITE; empty if there is none.
    path: the socket of the site.

  Returns:
    The exit status: that of the client; or of the worker, if it refused to
    serve; or 1 if workers die again and again without an answer.

  Raises:
    SiteError: see `listening`.
  """
  old = {number: signal.signal(number, _stop) for number in _SIGNALS}
  try:
    with listening(path) as listener, contextlib.ExitStack() as ends:
      return _keep(command, engine, listener, ends)
  finally:
    for number, handler in old.items():
      signal.signal(number, handler)


def _keep(command, engine, listener, ends) -> int:
  worker, client, greeted, deaths = _Worker(command, listener), None, False, 0
  ends.callback(lambda: worker.end())  # the last one of them
  while client is None or client.poll() is None:
    if worker.runs():
      if not greeted and worker.greeting is not None:
        greeted = True
        print(worker.greeting, flush=True)
        if engine:
          env = os.environ | {relay.VARIABLE: listener.getsockname()}
          client = subprocess.Popen(engine, env=env, start_new_session=True)
          ends.callback(_end, client)
      continue
    soon, status = worker.died_soon, worker.end()
    if not greeted and status >= 0:
      return status or 1
    deaths = deaths + 1 if soon else 0
    how = f'status {status}' if status >= 0 else f'signal {-status}'
    if deaths == _DEATHS:
      text = 'without an answer; its messages say why'
      print(f'The worker ended {deaths} times {text} ({how}).', flush=True)
      return 1
    print(f'The worker ended ({how}); it is started again.', flush=True)
    time.sleep(_DELAY * 2**deaths)
    worker = _Worker(command, listener)
  return (
    client.returncode if client.returncode >= 0 else 128 - client.returncode
  )


def _stop(number, _):
  for other in _SIGNALS:  # what is ended here needs some seconds
    signal.signal(other, signal.SIG_IGN)
  sys.exit(128 + number)


def _end(process: subprocess.Popen) -> int:
  """Ends a process and its group: by SIGTERM, and later by SIGKILL."""
  last = time.monotonic() + _GRACE
  for number in (signal.SIGTERM, signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(process.pid, number)
      while time.monotonic() < last:
        process.poll()
        os.killpg(process.pid, 0)
        time.sleep(0.02)
  return process.wait()
