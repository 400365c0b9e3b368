"""Trains on a list of hosts, one process each.

  fl-sketch hosts --hosts=a,b,c -- CONFIG --workdir=DIR

Every `fl-sketch train` gets the flags after `--`. `localhost` starts a local
process, any other name one by ssh, which must not ask for a password. All have
the same working folder, Python and PYTHONPATH, and the variables that begin
with JAX_, XLA_, NCCL_ or FL_SKETCH_. Each line of output begins with the number
of its process.

If one fails, the others get a SIGTERM. A SIGTERM or SIGINT is passed on: the
first saves and stops, the second ends at once; if this program itself dies, the
processes get a SIGTERM too. The exit status is that of the first that failed,
else 75 if one was stopped and can be resumed, else 0.
"""

from collections.abc import Sequence
import contextlib
import io
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading

from absl import app, flags

from . import STOPPED, parse_flags, refuse

MODULE = f'{__package__}.train'
PORT = 8476
PASSED_ON = ('JAX_', 'XLA_', 'NCCL_', 'FL_SKETCH_', 'PYTHONPATH')
LAST_WAIT = 5.0  # seconds from SIGKILL until a process is abandoned
SSH = ('ssh', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=15')
_HOSTS = flags.DEFINE_list(
  'hosts',
  None,
  'Hosts of the processes; the first is that of process 0.',
  required=True,
)
_PORT = flags.DEFINE_integer(
  'port', None, f'Of the coordinator; {PORT}, or a free one if all are local.'
)
_GRACE = flags.DEFINE_float(
  'grace', 30.0, 'Seconds from SIGTERM to SIGKILL, once a process has failed.'
)
# Runs on every host. It reads names of signals from stdin, since ssh passes no
# signals on; the end of stdin means that the sender has died. A shell that is
# not interactive gives background commands no stdin: they read descriptor 3.
_SCRIPT = """\
cd {folder} || exit
exec 3<&0
{program} </dev/null 3<&- & child=$!
{{ while read -r name; do kill -s "$name" $child; done; kill $child; }} \
<&3 >/dev/null 2>&1 & guard=$!
exec 3<&-
wait $child; status=$?
kill $guard 2>/dev/null
exit $status
"""


def command(
  hosts: Sequence[str], index: int, port: int, args: Sequence[str]
) -> list[str]:
  """Returns the command line that starts process `index` on its host.

  >>> command(['a', 'b'], 1, 8476, ['launch.train', '--config=c.py'])[-3:-1]
  ['--', 'b']

  Args:
    hosts: `localhost`, or names that ssh knows; the first has the coordinator.
    index: of the process.
    port: of the coordinator.
    args: a Python module and its flags.
  """
  env = [f'{k}={v}' for k, v in os.environ.items() if k.startswith(PASSED_ON)]
  program = [
    *('env', *sorted(env), sys.executable, '-u', '-m', *args),
    f'--coordinator={hosts[0]}:{port}',
    f'--num_processes={len(hosts)}',
    f'--process_id={index}',
  ]
  folder = shlex.quote(os.getcwd())
  script = _SCRIPT.format(folder=folder, program=shlex.join(program))
  if hosts[index] == 'localhost':
    return ['sh', '-c', script]
  return [*SSH, '--', hosts[index], shlex.join(['sh', '-c', script])]


def port_of(hosts: Sequence[str]) -> int:
  """Chooses the coordinator's port: a free one if all processes are local.

  Raises:
    ValueError: other hosts cannot reach the first one by the name `localhost`.
  """
  if hosts[0] != 'localhost':
    return PORT
  if set(hosts) != {'localhost'}:
    raise ValueError(
      f'Expected the first of hosts={",".join(hosts)} to have a name by which '
      'the others reach it.'
    )
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


class _Process:
  """The local process, a shell or ssh, that runs one host's process.

  It is in a new session: a Ctrl-C in the terminal would otherwise reach it
  twice, and the second signal ends a run at once.
  """

  def __init__(self, index: int, command: Sequence[str], events):
    self._prefix, self._events = f'[{index}] ', events
    self._popen = subprocess.Popen(
      command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    assert self._popen.stdin
    assert self._popen.stdout
    self._stdin = self._popen.stdin
    # newline='' keeps the \r that ends the lines of a progress bar.
    lines = io.TextIOWrapper(self._popen.stdout, errors='replace', newline='')
    threading.Thread(target=self._follow, args=(lines,), daemon=True).start()

  def _follow(self, lines):
    """Prints its output; when it has ended, queues its exit status."""
    try:
      with lines:
        for line in lines:
          print(self._prefix + line, end='', flush=True)
    finally:
      status = self._popen.wait()
      self._events.put((self, status if status >= 0 else 128 - status))

  def tell(self, name: str):
    """Sends a signal, by name, unless the process has ended."""
    with contextlib.suppress(BrokenPipeError):
      os.write(self._stdin.fileno(), f'{name}\n'.encode())

  def abandon(self):
    """Kills the local shell or ssh."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._popen.pid, signal.SIGKILL)

  def close(self):
    """Closes its stdin, once it has ended."""
    self._stdin.close()


def run(commands: Sequence[Sequence[str]], grace: float) -> int:
  """Runs commands in parallel until all have ended; returns the exit status.

  Args:
    commands: from `command`.
    grace: seconds from SIGTERM to SIGKILL for the others, if one fails.
  """
  # Signals, timers and exit statuses. A signal handler may put only into a
  # SimpleQueue.
  events = queue.SimpleQueue()
  note = lambda number, frame: events.put((None, 'TERM'))
  before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
  timers = [
    threading.Timer(grace, events.put, [(None, 'KILL')]),
    threading.Timer(grace + LAST_WAIT, events.put, [(None, 'abandon')]),
  ]
  try:
    running = {_Process(i, c, events) for i, c in enumerate(commands)}
    return _watch(running, events, timers)
  finally:
    for timer in timers:
      timer.cancel()
    for s, handler in before.items():
      signal.signal(s, handler)


def _watch(running, events, timers) -> int:
  stopped, failed = False, 0
  while running:
    who, what = events.get()
    if who is not None:
      who.close()
      running.remove(who)
      stopped = stopped or what == STOPPED
      # The peers of a process that was stopped have the signal and still save.
      if failed or what in (0, STOPPED):
        continue
      failed, what = what, 'TERM'
      for timer in timers:
        timer.start()
    for process in running:
      process.abandon() if what == 'abandon' else process.tell(what)
  return failed or STOPPED * stopped


def main(argv):
  """Starts the processes and waits for them."""
  try:
    port = _PORT.value or port_of(_HOSTS.value)
  except ValueError as e:
    refuse(e)
  args = [MODULE, *argv[1:]]
  count = range(len(_HOSTS.value))
  commands = [command(_HOSTS.value, i, port, args) for i in count]
  sys.exit(run(commands, _GRACE.value))


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
