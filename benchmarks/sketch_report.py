"""Tables, curves and JSON of the sketch benchmark."""

from collections.abc import Sequence
import pathlib
import statistics
from typing import NamedTuple

from fl_sketch.reporting import figures
from fl_sketch.training import devices
from fl_sketch.utils import extras, files, markdown

from . import libraries, sketch


class Faster(NamedTuple):
  """Speed of an operator relative to another entry of the same work.

  `both` is of the sum of sketch and desketch, None if the other has but one.
  """

  operator: str
  other: str
  sketch: float
  both: float | None


def power(n: int) -> str:
  """Formats a power of two as 2^20, another number as 1,000.

  >>> power(1024), power(1000)
  ('2^10', '1,000')
  """
  return f'2^{n.bit_length() - 1}' if n & (n - 1) == 0 else f'{n:,}'


def faster(result: sketch.Result) -> list[Faster]:
  """Compares operators with textbook and library entries of the same work."""
  ratios = []
  for ours in result.rows:
    for other in result.rows:
      peer = other.kind in ('textbook', 'library')
      if ours.kind == 'operator' and peer and ours.work == other.work:
        (ours_down, ours_up), (down, up) = map(_medians, (ours, other))
        both = (down + up) / (ours_down + ours_up) if up else None
        ratios.append(Faster(ours.name, other.name, down / ours_down, both))
  return ratios


def table(result: sketch.Result) -> str:
  """Markdown tables of a point: times and ratios, then relative speeds."""
  d, b, clients = result.point
  rows = {row.name: row for row in result.rows}
  read, copy = _medians(rows['read'])[0], _medians(rows['copy'])[1]
  size = 4 * d * clients
  head = ['contestant', 'work', 'sketch ms (min)', '÷ read']
  head += ['desketch ms (min)', '÷ copy', 'GB/s', 'extra MiB']
  lines = []
  for row in rows.values():
    down, up = _medians(row)
    line = [row.name, row.work, _milliseconds(row.sketch), _ratio(down, read)]
    line += [_milliseconds(row.desketch), _ratio(up, copy)]
    extra = ' / '.join(f'{n / 2**20:.3g}' for n in row.extra or ())
    line += [_ratio(size / 1e9, down), extra]
    lines.append(line)
  text = f'd = {power(d)}, b = {power(b)}, {_count(clients)}\n\n'
  text += markdown.table(head, lines, left=2)
  for why in dict.fromkeys(result.skipped.values()):
    names = [name for name, reason in result.skipped.items() if reason == why]
    text += f'\nLeft out, {why}: {", ".join(names)}.\n'
  return text + _faster_table(result)


def _faster_table(result):
  head = 'operator', 'times as fast as', 'sketch', 'sketch + desketch'
  lines = [
    (operator, other, f'{down:.2f}', '' if both is None else f'{both:.2f}')
    for operator, other, down, both in faster(result)
  ]
  return '\n' + markdown.table(head, lines, left=2) if lines else ''


def _count(clients):
  return f'{clients} client' + 's' * (clients > 1)


def _medians(row):
  """Median seconds of sketch and desketch; 0 without samples."""
  halves = row.sketch, row.desketch
  return tuple(statistics.median(half) if half else 0.0 for half in halves)


def _milliseconds(seconds):
  if not seconds:
    return ''
  middle, least = (1e3 * f(seconds) for f in (statistics.median, min))
  return f'{middle:.3g} ({least:.3g})'


def _ratio(a, b):
  return f'{a / b:.2f}' if a and b else ''


def write(
  results: Sequence[sketch.Result], out: pathlib.Path, with_libraries: bool
) -> list[pathlib.Path]:
  """Writes sketch.json and `curves` into a folder, created if missing."""
  out.mkdir(parents=True, exist_ok=True)
  points = [
    result.point._asdict()
    | {'rows': [row._asdict() for row in result.rows]}
    | {'skipped': result.skipped}
    for result in results
  ]
  report = files.measured_with()
  names = ['scipy', 'scikit-learn', 'torch'] if with_libraries else []
  report['versions'] |= libraries.versions(names)
  report |= {'cores': devices.cores(), 'points': points}
  path = out / 'sketch.json'
  files.replace(path, report)
  return [path, *curves(results, out)]


def curves(
  results: Sequence[sketch.Result], out: pathlib.Path
) -> list[pathlib.Path]:
  """Draws seconds_b4096_c1.png and so on, for groups with several d."""
  groups: dict[tuple[int, int], list[sketch.Result]] = {}
  for result in results:
    groups.setdefault(result.point[1:], []).append(result)
  paths = []
  for (b, clients), group in groups.items():
    if len({result.point.d for result in group}) > 1:
      path = out / f'seconds_b{b}_c{clients}.png'
      with extras.optional_figures():
        figures.draw(panels(group)).savefig(path, dpi=150)
        paths.append(path)
  return paths


def panels(group: Sequence[sketch.Result]) -> list[figures.Panel]:
  """Plots milliseconds of a sketch and a desketch against d, slowest first.

  Args:
    group: results of several d, with one size of tables and number of clients.
  """
  group = sorted(group, key=lambda result: result.point.d)
  rows = {row.name: row for result in group for row in result.rows}
  time = lambda row: _medians(row)[0] or _medians(row)[1]
  names = sorted(rows, key=lambda name: time(rows[name]), reverse=True)
  _, b, clients = group[0].point
  every = []
  for i, half in enumerate(('sketch', 'desketch')):
    lines = []
    for name in names:
      curve = [
        (result.point.d, 1e3 * _medians(row)[i])
        for result in group
        for row in result.rows
        if row.name == name and _medians(row)[i]
      ]
      if curve:
        xs, ys = zip(*curve, strict=True)
        work = rows[name].work
        alike = [n for n in names if rows[n].work == work]
        look = {'family': work, 'variant': alike.index(name)}
        lines.append(figures.Line(name, xs, ys, **look))
    title = f'{half}, b = {b:,}, {_count(clients)}'
    labels = 'coordinates d', 'milliseconds, median'
    every.append(
      figures.Panel(*labels, lines, title, x_scale='log', y_scale='log')
    )
  return every
