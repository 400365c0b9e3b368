"""Bench of sites that exchange outer steps over slow links, with faults.

Runs docs/examples/elastic_site.py on sites with a network namespace each, and
their hub in one more. A delay of 0 and one of half the steps show how long a
step waits. Then, at random times, a site is killed and started again, or
stopped, or its link is cut: how many steps the sites did, how long the others
stood still, how soon the payloads of the site counted again, and whether the
log, replayed, ends with the bits of the sites.
"""

from collections.abc import Iterator, Sequence
import contextlib
import itertools
import json
import pathlib
import runpy
import signal
import subprocess
import sys
import time
import types
from typing import NamedTuple

from fl_sketch.runs import figures
from fl_sketch.sites import hub, outer_rounds, wire
from fl_sketch.utils import markdown
import jax
import numpy as np
import tqdm

from . import slow_link

SITE = pathlib.Path(__file__).parents[1] / 'docs/examples/elastic_site.py'
EVERY, DELAY, PORT = 16, 14, 7000
FAULTS = 'kill', 'stop', 'cut'
_LASTS = 2.0, 12.0  # seconds of a stop or a cut, drawn uniformly
_SHORT = 60.0  # seconds of the run without a delay, of which steps count alone
_QUIET = 60.0  # seconds without a new fault, at the end
_AFTER = 30.0  # seconds in which a fault may have effects


class Fault(NamedTuple):
  """A fault of a site."""

  at: float  # seconds from the start
  site: int
  kind: str
  lasts: float


class Run(NamedTuple):
  """What the sites of a run did."""

  start: float
  seconds: float
  rows: list[list[dict]]  # of metrics, by site
  faults: list[Fault]  # as they were played
  folder: pathlib.Path

  @property
  def ends(self) -> list[np.ndarray]:
    """When each step of a site ended, in seconds from the start."""
    flat = itertools.chain.from_iterable
    return [
      np.array([*flat(row['times'] for row in rows)]) - self.start
      for rows in self.rows
    ]


def schedule(
  sites: int, seconds: float, hourly: float, seed: int
) -> list[Fault]:
  """Draw faults, a Poisson process over all sites."""
  rng, at, faults = np.random.default_rng(seed), 0.0, []
  while (at := at + rng.exponential(3600 / hourly)) < seconds - _QUIET:
    kind, site = FAULTS[rng.integers(len(FAULTS))], int(rng.integers(sites))
    faults.append(Fault(at, site, kind, float(rng.uniform(*_LASTS))))
  return faults


class Sites:
  """A hub in namespace w0 and sites in w1, w2, ..."""

  def __init__(self, folder, text, count, delay):
    self._folder, self._text = folder, text
    self._options = [f'--every={EVERY}', f'--delay={delay}', '--rounds=1000000']
    self._options.append(f'--blend={0.5 if delay else 0.0}')
    command = [sys.executable, '-m', 'launch', 'hub', f'--workdir={folder}/hub']
    command += [f'--address=tcp://*:{PORT}', f'--sites={count}']
    self.processes = [self._start(0, command)]
    self.processes += [self._start_site(i) for i in range(1, count + 1)]

  def _start(self, number, command):
    with (self._folder / f'log_{number}.txt').open('a') as log:
      enter = f'ip netns exec w{number}'.split()
      return subprocess.Popen([*enter, *command], stdout=log, stderr=log)

  def _start_site(self, number):
    folder = self._folder / f'site_{number}'
    folder.mkdir(exist_ok=True)
    hub_at = f'tcp://10.77.0.1:{PORT}'
    command = [sys.executable, str(SITE), hub_at, f'{number}', str(self._text)]
    return self._start(number, [*command, str(folder), *self._options])

  def play(self, fault: Fault):
    """Begin a fault; return what ends it."""
    number = fault.site + 1
    process, link = self.processes[number], f'ip link set end{number}'.split()
    if fault.kind == 'kill':
      process.kill()
      process.wait()
      self.processes[number] = self._start_site(number)
      return lambda: None
    if fault.kind == 'stop':
      process.send_signal(signal.SIGSTOP)
      return lambda: process.send_signal(signal.SIGCONT)
    subprocess.run([*link, 'down'], check=True)
    return lambda: subprocess.run([*link, 'up'], check=True)

  def end(self):
    """Kill all processes."""
    for process in self.processes:
      process.kill()
      process.wait()


def rows_of(folder: pathlib.Path) -> list[dict]:
  """Return the rows of a site's metrics; the last line may be half written."""
  path = folder / 'metrics.jsonl'
  lines = path.read_text().splitlines() if path.exists() else []
  return [json.loads(x) for x in lines if x.endswith('}')]


def play(folder, text, count, delay, seconds, faults: Sequence[Fault]) -> Run:
  """Run sites for some seconds from their first round on, with faults."""
  folder.mkdir(parents=True)
  bar = tqdm.tqdm(total=round(seconds), unit='s', desc=folder.name)
  with contextlib.ExitStack() as stack:
    sites = Sites(folder, text, count, delay)
    stack.callback(sites.end)
    while not all(rows_of(folder / f'site_{i + 1}') for i in range(count)):
      if any(process.poll() is not None for process in sites.processes):
        sys.exit(f'A process ended; its log is in {folder}.')
      time.sleep(0.5)
    start, ends, todo, played = time.time(), [], [*faults], []
    while (now := time.time() - start) < seconds:
      bar.update(round(now) - bar.n)
      for end in [end for end in ends if end[0] <= now]:
        end[1]()
        ends.remove(end)
      if todo and todo[0].at <= now:
        fault = todo.pop(0)
        ends.append((now + fault.lasts, sites.play(fault)))
        played.append(fault._replace(at=time.time() - start))
      time.sleep(0.02)
  rows = [rows_of(folder / f'site_{i + 1}') for i in range(count)]
  return Run(start, seconds, rows, played, folder)


def waited(run: Run) -> float:
  """Return the share of the time in which the sites wait for a round."""
  shares = []
  for rows, ends in zip(run.rows, run.ends, strict=True):
    waits = rows[-1]['waited'] - rows[0]['waited']
    first = rows[0]['times'][-1] - run.start
    shares.append(waits / (ends[-1] - first))
  return float(np.mean(shares))


def recoveries(run: Run) -> Iterator[tuple[Fault, float, float]]:
  """Yield (fault, seconds by which others stand still, until the site is back).

  The former are those of the longest step of another site, less the median of
  its steps; steps of sites after a fault of their own do not count. The
  site is back when another one takes a round with its payload that was opened
  after the fault.
  """
  log = hub.Log(run.folder / 'hub' / hub.LOG)
  client = lambda message: wire.decode_reply(message).client - 1
  members = [{*map(client, messages)} for messages in log]
  for fault in run.faults:
    hurt = {x.site for x in run.faults if 0 <= fault.at - x.at < _AFTER}
    others = {*range(len(run.rows))} - {fault.site}
    still = [_longest(run, i, fault.at) for i in others - hurt]
    back = min(_back(run, i, fault, members) for i in others)
    yield fault, max(still, default=np.nan), back


def _longest(run, site, at):
  """Return by how many seconds the longest step after a fault is longer."""
  ends = np.append(run.ends[site], run.seconds)
  seconds = np.diff(ends)
  own = [x.at for x in run.faults if x.site == site and x.at > at]
  after = (ends[1:] > at) & (ends[:-1] < at + _AFTER)
  after &= ends[1:] < min(own, default=np.inf)
  return float(np.max(seconds[after], initial=0.0) - np.median(seconds))


def _back(run, other, fault, members):
  """Return the seconds until `other` takes a round with the site's payload."""
  now = run.start + fault.at
  taken = [(row['round'], row['times'][-1] - now) for row in run.rows[other]]
  # Of the rounds that it has not yet, one may be closed, and the next open.
  first = 2 + max((number for number, at in taken if at <= 0), default=0)
  is_in = (i for i in range(first, len(members)) if fault.site in members[i])
  back = next(is_in, np.inf)
  return next((at for number, at in taken if number > back), np.inf)


def example():
  """Import the program of a site."""
  return types.SimpleNamespace(**runpy.run_path(str(SITE)))


def replayed(run: Run, text: pathlib.Path, until: int | None = None):
  """Return the shared state of a replay, and its loss on the last windows."""
  module = example()
  tokens, params, loss = module.problem(text)
  log = run.folder / 'hub'
  shared = outer_rounds.replay(log, params, module.TWO_BITS, until=until)
  rng = np.random.default_rng(0)
  batches = [module.draw(rng, tokens) for _ in range(50)]
  value = jax.jit(loss)
  return shared, float(np.mean([value(shared.params, x) for x in batches]))


def same_bits(run: Run, text: pathlib.Path) -> bool:
  """Return whether a replay has the bits that each site has saved last."""
  for number in range(1, len(run.rows) + 1):
    message = (run.folder / f'site_{number}/state.bin').read_bytes()
    saved = wire.decode_reply(message)
    shared, _ = replayed(run, text, until=saved.round)
    if saved.body[: len(raw := wire.to_bytes(shared))] != raw:
      return False
  return True


def link_commands(count: int, mbits: int) -> list[str]:
  """Return shell commands of links; that of the hub has no limit.

  All payloads pass the hub's, so that a limit there is one of the sum.
  """
  limits = slow_link.rate_commands(count + 1, mbits, first=1)
  return slow_link.link_commands(count + 1) + limits


def compare(folder, text, count, mbits, calm_s, hard_s, hourly) -> list[str]:
  """Run all, draw a picture; return the lines of a report."""
  for command in link_commands(count, mbits):
    subprocess.run(command, shell=True, check=True)
  calm = [
    play(folder / f'delay_{delay}', text, count, delay, seconds, ())
    for delay, seconds in ((0, min(_SHORT, calm_s)), (DELAY, calm_s))
  ]
  rows = [
    [f'{delay}', f'{1000 / rate(run):.1f}', f'{waited(run):.1%}']
    for delay, run in zip((0, DELAY), calm, strict=True)
  ]
  head = 'delay', 'ms a step', 'of them waiting'
  lines = [f'{count} sites, {mbits} Mbit/s, two bits every {EVERY} steps', '']
  lines += [markdown.table(head, rows, left=0), '']
  figures.draw([of_steps(calm)]).savefig(folder / 'steps.png')
  if hourly:
    faults = schedule(count, hard_s, hourly, seed=0)
    hard = play(folder / 'faults', text, count, DELAY, hard_s, faults)
    lines += of_faults(calm[1], hard, text)
  return lines


def rate(run: Run) -> float:
  """Return the steps of a site in a second, on average."""
  return sum(np.sum(x > 0) for x in run.ends) / run.seconds / len(run.rows)


def of_faults(calm: Run, hard: Run, text: pathlib.Path) -> list[str]:
  """Return what faults cost, against a run without them."""
  lines = [
    f'{len(hard.faults)} faults in {hard.seconds:.0f} s: '
    f'{rate(hard) / rate(calm):.1%} of the steps of an undisturbed run.'
  ]
  found = [*recoveries(hard)]
  for kind in FAULTS:
    times = [(on, back) for fault, on, back in found if fault.kind == kind]
    if times:
      on, back = map(np.nanmax, zip(*times, strict=True))
      text_of = f'{kind}, {len(times)} times: others stood still for {on:.1f} s'
      lines.append(f'{text_of} at most, the site was back within {back:.1f} s.')
  logs = [hub.Log(run.folder / 'hub' / hub.LOG) for run in (calm, hard)]
  least = min(map(len, logs))
  losses = [replayed(run, text, least)[1] for run in (calm, hard)]
  lines.append(
    f'Loss after {least} rounds: {losses[0]:.4f} without faults, '
    f'{losses[1]:.4f} with them.'
  )
  same = 'has' if same_bits(hard, text) else 'has not'
  return [*lines, f'The replayed log {same} the bits of the sites.']


def of_steps(runs: Sequence[Run]) -> figures.Panel:
  """Return the seconds of the last steps of a site, by the delay."""
  lines = []
  for run, label in zip(runs, ('no delay', f'delay {DELAY}'), strict=True):
    seconds = np.diff(run.ends[0])[-8 * EVERY :]
    lines.append(figures.Line(label, [*range(len(seconds))], [*seconds]))
  return figures.Panel('step', 'seconds', lines, y_scale='log')
