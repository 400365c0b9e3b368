"""Benchmark of sketch and desketch, relative to reading and writing.

All contestants run in one process, one after another and again, so that a
machine that slows down slows them all. R is fresh in every round, so every
sketch draws its matrix, and every desketch of an operator draws it again.
"""

from collections.abc import Iterator, Sequence
import functools
import itertools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from . import contestants, libraries, timing

DENSE_POINT = (2**16, 256)  # where the operators of O(b d) are compared
_SIZES = (2**12, 2**16)
_MEAN_OVER = 0.01  # seconds: shorter calls are timed several at a time
_SPEND = 30.0  # seconds on one contestant of one point, about
# Seconds after a library: threads of OpenBLAS and OpenMP spin for a while and
# would occupy a core of the next contestant.
_REST = 0.1


class Point(NamedTuple):
  """Size of a comparison: coordinates, table floats, clients of one key."""

  d: int
  b: int
  clients: int


class Row(NamedTuple):
  """The times of one contestant at one point, one per repeat.

  Attributes:
    name: of the contestant.
    work: equal for contestants that do the same work.
    kind: 'bound', 'operator', 'textbook' or 'library'.
    sketch: seconds, the drawing of the matrix included.
    desketch: seconds; a library reads the matrix that it keeps.
    extra: temporary bytes of sketch and desketch, as XLA reports them.
  """

  name: str
  work: str
  kind: str
  sketch: list[float]
  desketch: list[float]
  extra: tuple[int, int] | None = None


class Result(NamedTuple):
  """Times of all contestants at one point, and the reasons of skipped ones."""

  point: Point
  rows: list[Row]
  skipped: dict[str, str]


def points(
  dims: Sequence[int], sizes: Sequence[int] | None, clients: Sequence[int]
) -> list[Point]:
  """The points of a comparison: all tables smaller than d.

  >>> points([2**10], [2**5, 2**10], [1])
  [Point(d=1024, b=32, clients=1)]

  Args:
    dims: every d.
    sizes: every b; None for 2**12 and 2**16, and 256 at d = 2**16.
    clients: every number of clients.
  """
  selected = []
  for d in dims:
    extra = [DENSE_POINT[1]] if sizes is None and d == DENSE_POINT[0] else []
    for b in [*extra, *(sizes or _SIZES)]:
      selected += [Point(d, b, c) for c in clients if b < d]
  return selected


def too_large(point: Point, gib: float) -> str:
  """The reason why a point is left out; empty if it is not.

  >>> too_large(Point(2**20, 2**10, 512), 1.0)
  'd=1,048,576 clients=512: 2 GiB of input > memory_gib=1.'
  """
  d, _, clients = point
  need = 4 * d * clients / 2**30
  text = f'{d=:,} {clients=}: {need:g} GiB of input > memory_gib={gib:g}.'
  return text if need > gib else ''


def measure(
  selected: Sequence[Point],
  operators: Sequence[str],
  repeats: int,
  with_libraries: bool = True,
) -> Iterator[Result]:
  """Measures the points one by one.

  Args:
    selected: the points.
    operators: names of `OPERATORS`; libraries of other work are left out.
    repeats: times each contestant runs, in turn; the slowest ones less often.
    with_libraries: whether NumPy and others take part.

  Yields:
    A `Result` for each point.

  Raises:
    RuntimeError: a contestant did not do its work.
  """
  entries = {name: contestants.OPERATORS[name] for name in operators}
  works = {entry.work for entry in entries.values()}
  others = {'textbook': contestants.TEXTBOOK}
  others |= libraries.LIBRARIES if with_libraries else {}
  entries |= {k: entry for k, entry in others.items() if entry.work in works}
  total = len(selected) * (len(entries) + 2) * (repeats + 1)
  with tqdm.tqdm(total=total) as bar:
    for point in selected:
      yield _measure_point(point, entries, repeats, bar)


def _measure_point(point, entries, repeats, bar):
  d, b, clients = point
  # Two words of seed: the draws of the libraries have one.
  rng = np.random.default_rng((d, clients))
  x = rng.standard_normal((clients, d), dtype=np.float32)
  on_device = jnp.asarray(x[0] if clients == 1 else x)
  bar.set_description(f'd={d:,} b={b:,} clients={clients}')
  skipped = {k: why for k, e in entries.items() if (why := e.skip(d, b))}
  bar.update(len(skipped) * (repeats + 1))
  timers = []
  for name, runner in contestants.bounds(x, on_device).items():
    row = Row(name, 'bound', 'bound', [], [])
    timers.append(_Timer(row, runner, bar))
  for name, entry in entries.items():
    if name not in skipped:
      bar.set_postfix_str(f'check of {name}')
      runner = entry.make(x if entry.kind == 'library' else on_device, b)
      checked = functools.partial(contestants.check, name, runner, x, b)
      took, _ = timing.mean_seconds(checked, 1)
      row = Row(name, entry.work, entry.kind, [], [], runner.extra)
      timers.append(_Timer(row, runner, bar, took))
  for i, timer in itertools.product(range(repeats), timers):
    timer.repeat(i)
  return Result(point, [timer.row for timer in timers], skipped)


class _Timer:
  """Times one contestant, with as many calls as its speed requires."""

  def __init__(self, row, runner, bar, took=0.0):
    self.row, self._runner, self._bar, self._took = row, runner, bar, took
    self._draws = itertools.count(1)
    self._calls = 1, 1
    if took < 1:
      calls = [_MEAN_OVER / max(seconds, 1e-6) for seconds in self._once()]
      self._calls = tuple(max(1, min(100, int(n))) for n in calls)
    bar.update()

  def repeat(self, i):
    """Samples sketch and desketch; slow contestants only in early repeats."""
    self._bar.set_postfix_str(self.row.name, refresh=self._took > 1)
    if i == 0 or (i + 1) * self._took < _SPEND:
      sent, back = self._once()
      if self._runner.sketch:
        self.row.sketch.append(sent)
      if self._runner.desketch:
        self.row.desketch.append(back)
      if self.row.kind == 'library':
        time.sleep(_REST)
    self._bar.update()

  def _once(self):
    runner, sent, back = self._runner, 0.0, 0.0
    pair: Any = None, None
    # An accelerator gets all calls at once, since to start one may take longer
    # than its work; on a CPU they might overlap.
    wait = jax.default_backend() == 'cpu'
    if runner.sketch:
      draw = lambda: runner.sketch(next(self._draws))
      sent, pair = timing.mean_seconds(draw, self._calls[0], wait)
    if runner.desketch:
      redo = lambda: runner.desketch(*pair)
      back, _ = timing.mean_seconds(redo, self._calls[1], wait)
    return sent, back
