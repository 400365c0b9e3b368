"""Benchmark of sketch and desketch, relative to reading and writing.

All contestants run in one process, in turn. Every sketch draws its matrix, and
every desketch of an operator draws it again.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
import itertools
import time
from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.utils import markdown
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from . import contestants, libraries, timing

DENSE_POINT = (2**16, 256)  # where the operators of O(b d) are compared
_SIZES = (2**12, 2**16)
MOST_ENTRIES = 2**24  # of a matrix: to draw more takes half a minute
_MEAN_OVER = 0.01  # seconds: shorter calls are timed several at a time
_SPEND = 30.0  # seconds on one contestant of one point, about
# Seconds after a library, whose threads spin for a while and occupy a core.
_REST = 0.1


class Point(NamedTuple):
  """Size of a comparison: coordinates, table floats, clients of one key."""

  d: int
  b: int
  clients: int


class Row(NamedTuple):
  """The times of one contestant at one point, one per repeat."""

  name: str  # of the contestant
  work: str  # equal for contestants that do the same work
  kind: str  # 'bound', 'operator', 'textbook' or 'library'
  sketch: list[float]  # seconds, the drawing of the matrix included
  desketch: list[float]  # seconds; a library reads the matrix that it keeps


class Result(NamedTuple):
  """Times of contestants at one point; `skipped`: those that are too slow."""

  point: Point
  rows: list[Row]
  skipped: list[str]


def points(
  dims: Sequence[int], sizes: Sequence[int] | None, clients: Sequence[int]
) -> list[Point]:
  """Return points with tables smaller than d and inputs of 1 GiB at most.

  >>> points([2**10, 2**28], [2**5, 2**10], [1, 32])[:2]
  [Point(d=1024, b=32, clients=1), Point(d=1024, b=32, clients=32)]

  Where `sizes` is None every b is 2**12 or 2**16, and 256 at d = 2**16.
  """
  selected = []
  for d in dims:
    extra = [DENSE_POINT[1]] if sizes is None and d == DENSE_POINT[0] else []
    for b in [*extra, *(sizes or _SIZES)]:
      fits = [c for c in clients if b < d and 4 * d * c <= 2**30]
      selected += [Point(d, b, c) for c in fits]
  return selected


def exchange(d: int, repeats: int) -> str:
  """A table of the time of a one-bit table of d / 100 bytes, of two workers.

  At the break-even a dense all-reduce, of 4 d bytes a worker, takes as long.
  """
  op, codec = sketches.block_srht(d * 8 // 25), codecs.eden(rotate=False)
  key = partial(jax.random.wrap_key_data, impl='threefry2x32')
  encode = jax.jit(lambda w, x: codec.encode(key(w), op.sketch(key(w), x)))

  @jax.jit
  def decode(w, payloads, x):
    like = op.zero_table(x)
    one, two = (codec.decode(key(w), payload, like) for payload in payloads)
    return op.desketch(key(w), (one + two) / 2, x)

  words, copy = jnp.array([0, 1], jnp.uint32), jax.jit(lambda x: x + 1)
  x = jax.random.normal(jax.random.key(0), (d,))
  payload = encode(words, x)
  calls = partial(copy, x), partial(encode, words, x)
  calls += (partial(decode, words, [payload, payload], x),)
  copied, *times = timing.medians(calls, repeats)
  saved = 8 * (x.nbytes - sum(part.nbytes for part in payload))  # bits
  head = f'd = {d:,}', 'encode ms', 'decode ms', '÷ copy', 'break-even Mbit/s'
  numbers = *(1e3 * t for t in times), sum(times) / copied
  row = [f'{n:.3g}' for n in (*numbers, saved / sum(times) / 1e6)]
  return markdown.table(head, [['encode and decode, d / 100', *row]], left=1)


def measure(
  selected: Sequence[Point], operators: Sequence[str], repeats: int
) -> Iterator[Result]:
  """Measure point by point, without libraries of other work than `operators`.

  Each contestant runs `repeats` times, in turn; the slowest less often.
  """
  ours = {name: contestants.OPERATORS[name] for name in operators}
  works = {entry.work for entry in ours.values()}
  peers = {'textbook': contestants.TEXTBOOK} | libraries.LIBRARIES
  peers = {k: entry for k, entry in peers.items() if entry.work in works}
  entries = {'bound': contestants.BOUNDS} | ours | peers
  total = len(selected) * len(entries) * (repeats + 1)
  with tqdm.tqdm(total=total) as bar:
    for point in selected:
      yield measure_point(point, entries, repeats, bar)


def measure_point(
  point: Point,
  entries: Mapping[str, contestants.Contestant],
  repeats: int,
  bar: tqdm.tqdm,
) -> Result:
  """Measure all entries at one point, in turn."""
  d, b, clients = point
  # Two words of seed: the draws of the libraries have one.
  rng = np.random.default_rng((d, clients))
  x = rng.standard_normal((clients, d), dtype=np.float32)
  on_device = jnp.asarray(x[0] if clients == 1 else x)
  bar.set_description(f'd={d:,} b={b:,} clients={clients}')
  timers, skipped = [], []
  for name, entry in entries.items():
    bar.set_postfix_str(f'first call of {name}')
    if entry.entries(d, b) > MOST_ENTRIES:
      skipped.append(name)
      bar.update(repeats + 1)
      continue
    runner = entry.make(x if entry.kind == 'library' else on_device, b)
    row = Row(name, entry.work, entry.kind, [], [])
    timers.append(_Timer(row, runner, bar))
  for i, timer in itertools.product(range(repeats), timers):
    timer.repeat(i)
  return Result(point, [timer.row for timer in timers], skipped)


class _Timer:
  """Times one contestant, with as many calls as its speed requires."""

  def __init__(self, row, runner, bar):
    self.row, self._runner, self._bar = row, runner, bar
    self._draws = itertools.count()
    self._calls = 1, 1
    first = self._once()
    self._took = sum(first)
    calls = [_MEAN_OVER / max(seconds, 1e-6) for seconds in first]
    self._calls = tuple(max(1, min(100, int(n))) for n in calls)
    bar.update()

  def repeat(self, i):
    """Sample sketch and desketch; slow contestants only in early repeats."""
    self._bar.set_postfix_str(self.row.name, refresh=self._took > 1)
    if i == 0 or (i + 1) * self._took < _SPEND:
      sent, back = self._once()
      self.row.sketch.append(sent)
      self.row.desketch.append(back)
      if self.row.kind == 'library':
        time.sleep(_REST)
    self._bar.update()

  def _once(self):
    # An accelerator gets all calls at once; on a CPU they might overlap.
    wait = jax.default_backend() == 'cpu'
    draw = lambda: self._runner.sketch(next(self._draws))
    sent, pair = timing.mean_seconds(draw, self._calls[0], wait)
    redo = partial(self._runner.desketch, *pair)
    return sent, timing.mean_seconds(redo, self._calls[1], wait)[0]
