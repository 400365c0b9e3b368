"""Runs launch.train on a list of hosts, one process each.

  python -m launch.hosts --hosts=a,b,c -- --config=FILE --workdir=DIR

What follows `--` goes to every launch.train. `localhost` starts a process here,
any other name one by ssh, which must not ask for a password. All have the same
working folder, Python and PYTHONPATH, and the variables that begin with JAX_,
XLA_, NCCL_ or FL_SKETCH_. The lines they print begin with their number.

If one fails the others are told to end. A SIGTERM or SIGINT is passed on, once
to save and stop, twice to end at once; if this program itself dies, they are
told to stop too. The exit status is that of the first that failed, else 75 if
one was stopped, so that the same command goes on, else 0.
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
import launch

MODULE = 'launch.train'
PORT = 8476
PASSED_ON = ('JAX_', 'XLA_', 'NCCL_', 'FL_SKETCH_', 'PYTHONPATH')
LAST_WAIT = 5.0  # seconds from SIGKILL until a process is given up
SSH = ('ssh', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=15')
_HOSTS = flags.DEFINE_list(
  'hosts',
  None,
  'Where the processes run; the first is process 0.',
  required=True,
)
_PORT = flags.DEFINE_integer(
  'port', None, f'Of the coordinator; {PORT}, or a free one if all run here.'
)
_GRACE = flags.DEFINE_float(
  'grace', 30.0, 'Seconds from SIGTERM to SIGKILL, once a process has failed.'
)
# Runs on every host. Signals come by name on stdin, since ssh passes none on,
# and its end means that nobody is left to send any. A shell that is not
# interactive gives what it starts in the background no stdin, hence 3.
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
  """What starts process `index`, on its host.

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
  """A port for the coordinator: a free one if all processes are here.

  Raises:
    ValueError: the others cannot reach the first host by its name.
  """
  if hosts[0] != 'localhost':
    return PORT
  if set(hosts) != {'localhost'}:
    raise ValueError(
      f'Expected the first of hosts={",".join(hosts)} by a name that the '
      'others can reach.'
    )
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


class _Process:
  """One host's process, as seen from here: a shell, or ssh.

  It has a session of its own, since a Ctrl-C in the terminal would otherwise
  reach it twice, and a second signal ends a run at once.
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
    # A progress bar ends its lines with \r, and goes on doing so.
    lines = io.TextIOWrapper(self._popen.stdout, errors='replace', newline='')
    threading.Thread(target=self._follow, args=(lines,), daemon=True).start()

  def _follow(self, lines):
    """Shows what it prints; when it has ended, enters its exit status."""
    try:
      with lines:
        for line in lines:
          print(self._prefix + line, end='', flush=True)
    finally:
      status = self._popen.wait()
      self._events.put((self, status if status >= 0 else 128 - status))

  def tell(self, name: str):
    """Sends a signal, by name, if there is somebody left to send it to."""
    with contextlib.suppress(BrokenPipeError):
      os.write(self._stdin.fileno(), f'{name}\n'.encode())

  def abandon(self):
    """Kills what is here of it."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._popen.pid, signal.SIGKILL)

  def close(self):
    """Lets go of it, once it has ended."""
    self._stdin.close()


def run(commands: Sequence[Sequence[str]], grace: float) -> int:
  """Runs them side by side until all have ended; returns the exit status.

  Args:
    commands: from `command`.
    grace: seconds from SIGTERM to SIGKILL for the others, if one fails.
  """
  # Signals, timers and what has ended; unlike others this queue may be filled
  # from a signal handler.
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
      stopped = stopped or what == launch.STOPPED
      # One that was stopped has told the others, who are still saving.
      if failed or what in (0, launch.STOPPED):
        continue
      failed, what = what, 'TERM'
      for timer in timers:
        timer.start()
    for process in running:
      process.abandon() if what == 'abandon' else process.tell(what)
  return failed or launch.STOPPED * stopped


def main(argv):
  """Starts the processes, and waits for them."""
  try:
    port = _PORT.value or port_of(_HOSTS.value)
  except ValueError as e:
    launch.refuse(e)
  args = [MODULE, *argv[1:]]
  count = range(len(_HOSTS.value))
  commands = [command(_HOSTS.value, i, port, args) for i in count]
  sys.exit(run(commands, _GRACE.value))


if __name__ == '__main__':
  app.run(main, flags_parser=launch.parse_flags)
