"""Plugin of pytest: tiers of parametrised laws, and the CPU time of tests."""

import os
import statistics
import time

import numpy as np
import pytest

# In loops of `_loop`, of a tenth of a second or so of CPU each: one processor
# takes several times as long as another. It runs now and then between tests, as
# what others do on a shared processor can double its time within a minute.
MOST_OF_ONE = 100  # of the call of a test in the fast tier
MOST_OF_ALL = 4000  # of the fast tier with its fixtures
SHOWN = 10
_EVERY = 100  # tests of a worker between two loops
_tests = 0
_measured: float | None = None
_loops: list[float] = []
_start = 0.0
_calls: dict[str, float] = {}
_total = 0.0
_is_fast = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Makes what `representatives(*ids)` does not name nightly."""
  selects = config.getoption('lf', False) or any(
    '::' in arg for arg in config.args
  )
  laws = {}
  for item in items:
    if mark := item.get_closest_marker('representatives'):
      laws.setdefault(item.nodeid.partition('[')[0], (mark, []))[1].append(item)
  for name, (mark, of_law) in laws.items():
    ids = {item.callspec.id for item in of_law}
    unknown = set(mark.args) - ids
    if unknown and not selects:
      raise pytest.UsageError(f'Expected {unknown} of {name} in {ids}.')
    for item in of_law:
      if item.callspec.id not in mark.args:
        item.add_marker('nightly')


def _loop() -> float:
  """CPU time of a fixed loop in Python, or of a sort in C where that is more.

  One Python runs the loop a third faster than another, and tests no faster.
  """
  numbers = np.random.default_rng(0).random(1_000_000)
  start = time.process_time()
  sum(i * i for i in range(2_000_000))
  middle = time.process_time()
  np.sort(numbers, kind='stable')
  return max(middle - start, time.process_time() - middle)


def cpu_seconds() -> float:
  """CPU time of this process, and of its children that have ended."""
  times = os.times()
  return sum(times[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
  global _start, _tests, _measured
  if _tests % _EVERY == 0:
    _measured = _loop()
  _tests += 1
  _start = cpu_seconds()
  return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
  """Adds to the report of a phase what it took; xdist sends it along."""
  global _start, _measured
  report = yield
  now = cpu_seconds()
  report.cpu_seconds, _start = now - _start, now
  report.loop_seconds, _measured = _measured, None
  return report


def pytest_runtest_logreport(report):
  global _total, _is_fast
  seconds = getattr(report, 'cpu_seconds', 0.0)  # none where a worker crashed
  _total += seconds
  if (loop := getattr(report, 'loop_seconds', None)) is not None:
    _loops.append(loop)
  if report.when == 'call':
    _calls[report.nodeid] = seconds
  if not report.keywords.keys().isdisjoint({'nightly', 'long'}):
    _is_fast = False


def pytest_sessionfinish(session):
  """Fails above the budget where the environment says so, as .ci/run does."""
  enforced = os.environ.get('TEST_BUDGET') == 'fail'
  if enforced and _excess() and session.exitstatus == pytest.ExitCode.OK:
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
  if not _calls:
    return
  write = terminalreporter.write_line
  slowest = sorted(_calls.items(), key=lambda pair: -pair[1])[:SHOWN]
  for name, seconds in slowest:
    write(f'{seconds:6.1f} s of CPU: {name}')
  loop = f', {statistics.mean(_loops):.3f} s a loop' if _loops else ''
  write(
    f'{_total:6.0f} s of CPU: all {len(_calls)} tests and their fixtures{loop}'
  )
  for line in _excess():
    write(line, red=True)


def _excess() -> list[str]:
  """What exceeds the budget of the fast tier."""
  if not _is_fast or not _loops:
    return []
  loop = statistics.mean(_loops)
  most_of_one, most_of_all = MOST_OF_ONE * loop, MOST_OF_ALL * loop
  lines = [
    f'{name} takes {seconds:.1f} s of CPU, above {most_of_one:.1f}: make it '
    'cheaper, or mark it nightly.'
    for name, seconds in _calls.items()
    if seconds > most_of_one
  ]
  if _total > most_of_all:
    lines.append(
      f'The fast tier takes {_total:.0f} s of CPU, above {most_of_all:.0f}.'
    )
  return lines
