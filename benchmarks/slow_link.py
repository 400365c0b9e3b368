"""Bench of training steps between processes over emulated slow links.

Each process has a network namespace and a host name of its own, to which gloo
binds; a bridge joins them, and a token bucket on every end limits the rate.
Contestants take turns, so that a machine that slows down slows them all.
"""

from collections.abc import Iterator, Sequence
import contextlib
import itertools
import json
import math
import os
import pathlib
import select
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import tqdm

# The bench is the first process of a namespace of processes: all of them, their
# links and mounts end with it, however it ends.
ISOLATED = shlex.split(
  'unshare --net --mount --uts --pid --fork --kill-child --mount-proc'
)
if os.geteuid():
  ISOLATED.append('--map-root-user')
_WORKER = pathlib.Path(__file__).with_name('slow_link_worker.py')
_PATIENCE = 900  # seconds: that long a process may start, or take its steps
_TURN = 1.0  # seconds of a turn, about, where steps are short
DENSE = 'JAX', 'PyTorch DDP'  # with which the others are compared
CONTESTANTS = (
  'JAX', 'JAX bfloat16', 'bfloat16 both ways', 'one-bit tables',
  'one-bit tables both ways', 'two bits every 8 steps', 'PyTorch DDP',
  'PyTorch DDP bfloat16', 'PyTorch DDP PowerSGD',
)  # fmt: skip
_UPDATES = {'two bits every 8 steps': 8}  # of a call; else 1


class Row(NamedTuple):
  """Bytes out of a process and seconds, of one step: by rate, one a turn."""

  contestant: str
  bytes: dict[float, list[float]]
  seconds: dict[float, list[float]]

  @property
  def sent(self) -> float:
    """Median bytes out of a process."""
    return statistics.median(itertools.chain(*self.bytes.values()))

  @property
  def compute(self) -> float:
    """Seconds without the link: least squares of seconds - bytes / rate.

    Relative errors count: weights are 1 / seconds^2. At an infinite rate a link
    takes no time.
    """
    took = np.array([statistics.median(x) for x in self.seconds.values()])
    rest = took - 8e-6 * self.sent / np.array(list(self.seconds))
    return float(np.average(rest, weights=took**-2.0))


class Result(NamedTuple):
  """Rows of one number of processes, and the versions of the libraries."""

  processes: int
  rows: list[Row]
  versions: dict[str, str]


def break_even(row: Row, dense: Row) -> float:
  """Return the Mbit/s below which `row` takes less time than `dense`.

  >>> dense, row = (Row('', {1: [b]}, {1: [t]}) for b, t in ((1e6, 9), (0, 2)))
  >>> break_even(row, dense), break_even(dense, row)
  (8.0, 0.0)
  """
  saved, extra = dense.sent - row.sent, row.compute - dense.compute
  if extra <= 0 < saved:
    return math.inf
  return max(8e-6 * saved / extra, 0.0) if saved > 0 else 0.0


def link_commands(count: int) -> list[str]:
  """Return shell commands that join namespaces w0, w1, ... by a bridge."""
  lines = ['mount -t tmpfs none /run', 'mount -t sysfs none /sys']
  lines += ['ip link add bridge0 type bridge', 'ip link set bridge0 up']
  for i in range(count):
    lines += [
      f'ip netns add w{i}',
      f'ip link add end{i} type veth peer name eth0 netns w{i}',
      f'ip link set end{i} master bridge0 up',
      f'ip -n w{i} addr add 10.77.0.{i + 1}/24 dev eth0',
      f'ip -n w{i} link set eth0 up',
      f'ip -n w{i} link set lo up',
      f'echo 10.77.0.{i + 1} w{i} >> /run/hosts',
    ]
  return [*lines, 'mount --bind /run/hosts /etc/hosts']


def rate_commands(count: int, mbits: int, first: int = 0) -> list[str]:
  """Return shell commands that limit both ends of links, from `first` on.

  The bucket holds 1 ms, or two packets: what fits into it takes no time.
  """
  burst = max(3000, 125 * mbits)
  bucket = f'root tbf rate {mbits}mbit burst {burst}b latency 2000ms'
  ends = [f'qdisc replace dev end{i}' for i in range(first, count)]
  ends += [f'-n w{i} qdisc replace dev eth0' for i in range(first, count)]
  return [f'tc {end} {bucket}' for end in ends]


def refusal() -> str:
  """Return why links cannot be emulated here, in one line; '' if they can."""
  script = '\n'.join(['set -e', *link_commands(2), *rate_commands(2, 10)])
  trial = shlex.join([*ISOLATED, 'sh', '-c', script])
  done = subprocess.run(trial, shell=True, capture_output=True, text=True)
  said = done.stderr.strip().splitlines() or ['unshare fails']
  return said[-1] if done.returncode else ''


class _Group:
  """Processes of one library, which run steps of contestants on command."""

  def __init__(self, stack, library, python, count, linked, names):
    with socket.socket() as s:
      s.bind(('', 0))
      where = f'{"w0" if linked else "localhost"}:{s.getsockname()[1]}'
    self.library, self._linked, self._workers = library, linked, []
    for i in range(count):
      command = [python, '-P', str(_WORKER), library, f'{i}', f'{count}', where]
      command += names
      if linked:
        enter = f'ip netns exec w{i} unshare --uts sh -c'.split()
        command = [*enter, f'hostname w{i}; exec "$@"', 'sh', *command]
      log = stack.enter_context(tempfile.TemporaryFile())
      worker = subprocess.Popen(
        command, bufsize=0, stderr=log, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {'JAX_PLATFORMS': 'cpu'},
      )  # fmt: skip
      stack.enter_context(worker)  # waits for it, after it is killed
      stack.callback(worker.kill)
      self._workers.append((worker, log, f'{library}, process {i} of {count}'))
    answers = [_answer(*worker) for worker in self._workers]
    self.contestants, self.parameters, self.version = answers[0]

  def steps(self, contestant: str, count: int) -> tuple[float, float]:
    """Run steps; return bytes out of a process and seconds, of one step."""
    before = self._sent()
    for worker, _, _ in self._workers:
      worker.stdin.write(f'{count} {contestant}\n'.encode())
    seconds = max(_answer(*worker) for worker in self._workers)
    sent = (self._sent() - before) / len(self._workers)
    count *= _UPDATES.get(contestant, 1)
    return sent / count, seconds / count

  def _sent(self):
    """Bytes out of all processes: on a link, those that its far end gets."""
    names = [f'end{i}/statistics/rx_bytes' for i in range(len(self._workers))]
    paths = names if self._linked else ['lo/statistics/tx_bytes']
    read = lambda path: pathlib.Path('/sys/class/net', path).read_text()
    return sum(int(read(path)) for path in paths)


def _answer(worker, log, name):
  if not select.select([worker.stdout], [], [], _PATIENCE)[0]:
    sys.exit(f'{name}: no answer in {_PATIENCE} s; the bench ends.')
  if line := worker.stdout.readline():
    return json.loads(line)
  log.seek(0)
  text = log.read().decode(errors='replace')[-2000:]
  sys.exit(f'{name} ended after it had written:\n{text}')


def measure(
  counts: Sequence[int],
  rates: Sequence[float],
  turns: int,
  pythons: dict[str, str],
  names: Sequence[str],
) -> Iterator[Result]:
  """Measure steps with each number of processes in turn.

  Args:
    counts: numbers of processes.
    rates: Mbit/s of the links, where this process is isolated; [inf] measures
      on loopback.
    turns: samples of each contestant.
    pythons: a Python for each library, 'jax' and 'torch'.
    names: the contestants.
  """
  linked = math.isfinite(rates[0])
  if linked:
    _shell(link_commands(max(counts)))
  for count in counts:
    if linked:
      _shell(rate_commands(count, 10_000))  # to start with
    with contextlib.ExitStack() as stack:
      groups = [
        _Group(stack, *p, count, linked, names) for p in pythons.items()
      ]
      if len({group.parameters for group in groups}) > 1:
        sys.exit('The libraries train models of different sizes.')
      rows = _play(groups, count, rates, turns)
      versions = {group.library: group.version for group in groups}
      yield Result(count, rows, versions)


def _play(groups, count, rates, turns):
  plays = [(g, Row(name, {}, {})) for g in groups for name in g.contestants]
  bar = tqdm.tqdm(total=len(rates) * (turns + 1) * len(plays))
  for rate in rates:
    if math.isfinite(rate):
      _shell(rate_commands(count, int(rate)))
    calls = [1] * len(plays)
    for turn in range(turns + 1):  # the first one shows how long steps take
      for i, (group, row) in enumerate(plays):
        bar.set_description(f'{count} at {rate} Mbit/s: {row.contestant}')
        sent, seconds = group.steps(row.contestant, calls[i])
        if turn:
          row.bytes.setdefault(rate, []).append(sent)
          row.seconds.setdefault(rate, []).append(seconds)
        calls[i] = max(1, min(20, int(_TURN / seconds)))
        bar.update()
  bar.close()
  return [row for _, row in plays]


def _shell(lines):
  subprocess.run(['sh', '-ec', '\n'.join(lines)], check=True)
