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
import time
from typing import NamedTuple

import numpy as np
import tqdm

_WORKER = pathlib.Path(__file__).with_name('slow_link_worker.py')
_NET = '10.77.0.'
# All of it ends with the bench, however that ends: its process is the first of
# a namespace of processes, and mounts and links are in namespaces of their own.
ISOLATED = shlex.split(
  'unshare --net --mount --uts --pid --fork --kill-child --mount-proc'
)
_PATIENCE = 600  # seconds until a process that does not answer is given up
_TURN = 1.0  # seconds of a turn, about, where steps are short
DENSE = 'JAX', 'PyTorch DDP'  # what the others are compared with


class Row(NamedTuple):
  """What a contestant has sent and taken, by rate in Mbit/s."""

  processes: int
  contestant: str
  bytes: dict[float, list[float]]  # out of a process a step, one per turn
  seconds: dict[float, list[float]]  # a step

  @property
  def sent(self) -> float:
    """Median bytes out of a process in a step."""
    return statistics.median(itertools.chain(*self.bytes.values()))

  @property
  def compute(self) -> float:
    """Seconds of a step without the link: the mean of t - bytes / rate.

    Weights are 1 / t^2, so that relative errors count; a rate of infinity is a
    link that takes no time.
    """
    rates = np.array(list(self.seconds))
    took = np.array([statistics.median(x) for x in self.seconds.values()])
    rest = took - 8e-6 * self.sent / rates
    return float(np.average(rest, weights=took**-2.0))


def break_even(row: Row, dense: Row) -> float:
  """Return the Mbit/s below which `row` is faster than `dense`.

  Infinity where it is faster at any rate, 0 where at none.

  >>> one, two = (Row(2, '', {1: [b]}, {1: [t]}) for b, t in ((1e6, 9), (0, 2)))
  >>> break_even(two, one)
  8.0
  """
  saved, extra = dense.sent - row.sent, row.compute - dense.compute
  if extra <= 0:
    return math.inf if saved >= 0 else 0.0
  return max(8e-6 * saved / extra, 0.0)


def link_commands(workers: int) -> list[str]:
  """Return shell commands that join namespaces w0, w1, ... by a bridge."""
  lines = ['mount -t tmpfs none /run', 'mount -t sysfs none /sys']
  lines += ['ip link add bridge0 type bridge', 'ip link set bridge0 up']
  for i in range(workers):
    lines += [
      f'ip netns add w{i}',
      f'ip link add end{i} type veth peer name eth0 netns w{i}',
      f'ip link set end{i} master bridge0 up',
      f'ip -n w{i} addr add {_NET}{i + 1}/24 dev eth0',
      f'ip -n w{i} link set eth0 up',
      f'ip -n w{i} link set lo up',
      f'echo {_NET}{i + 1} w{i} >> /run/hosts',
    ]
  return [*lines, 'mount --bind /run/hosts /etc/hosts']


def rate_commands(workers: int, mbits: int) -> list[str]:
  """Return shell commands that limit both ends of every link.

  A burst of 1 ms, or of two packets: what is below the burst takes no time.
  """
  burst = max(3000, 125 * mbits)
  bucket = f'root tbf rate {mbits}mbit burst {burst}b latency 2000ms'
  lines = []
  for i in range(workers):
    lines.append(f'tc qdisc replace dev end{i} {bucket}')
    lines.append(f'tc -n w{i} qdisc replace dev eth0 {bucket}')
  return lines


def refusal() -> str:
  """Return why links cannot be emulated here, in one line; '' if they can."""
  script = '\n'.join(['set -e', *link_commands(2), *rate_commands(2, 10)])
  trial = shlex.join([*ISOLATED, 'sh', '-c', script])
  done = subprocess.run(trial, shell=True, capture_output=True, text=True)
  return (done.stderr.strip() or 'unshare fails') if done.returncode else ''


class _Group:
  """Processes of one library, which run steps of contestants on command."""

  def __init__(self, stack, python, library, count, linked):
    with socket.socket() as s:
      s.bind(('', 0))
      port = s.getsockname()[1]
    host = 'w0' if linked else 'localhost'
    self.library, self._linked, self._workers = library, linked, []
    for i in range(count):
      name = f'{library}, process {i} of {count}'
      command = [python, '-P', _WORKER, library, i, count, f'{host}:{port}']
      command = [str(part) for part in command]
      if linked:
        script = f'hostname w{i}; exec "$@"'
        enter = f'ip netns exec w{i} unshare --uts sh -c'
        command = [*enter.split(), script, 'sh', *command]
      log = stack.enter_context(tempfile.TemporaryFile())
      worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        bufsize=0, env=os.environ | {'JAX_PLATFORMS': 'cpu'},
      )  # fmt: skip
      stack.callback(_end, worker)
      self._workers.append((worker, log, name))
    answers = [self._answer(*worker) for worker in self._workers]
    self.contestants, self.parameters, self.version = answers[0]

  def steps(self, contestant: str, count: int) -> tuple[float, float]:
    """Runs steps; bytes out of a process and seconds, both of one step."""
    before = self._sent()
    for worker, _, _ in self._workers:
      worker.stdin.write(f'{count} {contestant}\n'.encode())
    seconds = max(self._answer(*worker) for worker in self._workers)
    sent = (self._sent() - before) / len(self._workers)
    return sent / count, seconds / count

  def _sent(self):
    """Bytes that have left all processes: the far end of a link gets them."""
    count = len(self._workers) if self._linked else 0
    names = [f'end{i}/statistics/rx_bytes' for i in range(count)]
    paths = (f'/sys/class/net/{x}' for x in names or ['lo/statistics/tx_bytes'])
    return sum(int(pathlib.Path(path).read_text()) for path in paths)

  def _answer(self, worker, log, name):
    if not select.select([worker.stdout], [], [], _PATIENCE)[0]:
      sys.exit(f'{name} gave no answer in {_PATIENCE} s; the bench ends.')
    if line := worker.stdout.readline():
      return json.loads(line)
    log.seek(0)
    said = log.read().decode(errors='replace')[-2000:]
    sys.exit(f'{name} ended early, after writing:\n{said}')


def _end(worker):
  worker.kill()
  worker.wait()


def measure(
  counts: Sequence[int],
  rates: Sequence[int],
  turns: int,
  pythons: dict[str, str],
  linked: bool,
) -> Iterator[tuple[list[Row], dict[str, str]]]:
  """Measure with each number of processes; yields rows, and versions.

  Args:
    counts: numbers of processes.
    rates: Mbit/s; without links one infinite rate is measured, of loopback.
    turns: samples of each contestant.
    pythons: the Python of each library, 'jax' and 'torch'.
    linked: whether this process is in the namespaces of `ISOLATED`.
  """
  if linked:
    _shell(link_commands(max(counts)))
  for count in counts:
    with contextlib.ExitStack() as stack:
      if linked:
        _shell(rate_commands(count, 10_000))
      groups = [
        _Group(stack, python, library, count, linked)
        for library, python in pythons.items()
      ]
      if len({group.parameters for group in groups}) > 1:
        sys.exit('The libraries train models of different sizes.')
      rows = _play(groups, count, rates if linked else [math.inf], turns)
      yield rows, {group.library: group.version for group in groups}


def _play(groups, count, rates, turns):
  plays = [(group, name) for group in groups for name in group.contestants]
  rows = [Row(count, name, {}, {}) for _, name in plays]
  bar = tqdm.tqdm(total=len(rates) * (turns + 1) * len(rows))
  for rate in rates:
    if rate < math.inf:
      _shell(rate_commands(count, rate))
    calls = [1] * len(plays)
    for turn in range(turns + 1):  # the first one shows how long steps take
      for i, (row, (group, name)) in enumerate(zip(rows, plays, strict=True)):
        bar.set_description(f'{count} processes, {rate} Mbit/s, {name}')
        sent, seconds = group.steps(name, calls[i])
        if turn:
          row.bytes.setdefault(rate, []).append(sent)
          row.seconds.setdefault(rate, []).append(seconds)
        calls[i] = max(1, min(20, int(_TURN / seconds)))
        bar.update()
  bar.close()
  return rows


def _shell(lines):
  subprocess.run(['sh', '-ec', '\n'.join(lines)], check=True)
