"""Tables and JSON of the benchmarks."""

from collections.abc import Mapping, Sequence
from importlib import metadata
import itertools
import pathlib
import statistics
from typing import Any

from fl_sketch.runs import devices
from fl_sketch.utils import files, markdown
import jax
import numpy as np

from . import gpu, scale, sketch, slow_link


def round_table(seconds: Mapping[str, Sequence[float]]) -> str:
  """A Markdown table of medians, with ratios to FedAvg and every hand loop."""
  medians = {label: statistics.median(runs) for label, runs in seconds.items()}
  against = ['fedavg', *(k for k in medians if k.startswith('hand'))]
  head = ['contestant', 's/round', *(f'÷ {k}' for k in against)]
  rows = []
  for label, took in medians.items():
    ratios = (f'{took / medians[k]:.2f}' for k in against)
    rows.append([label, f'{took:.4f}', *ratios])
  return markdown.table(head, rows, left=1).removesuffix('\n')


def scale_table(results: Sequence[scale.Result]) -> str:
  """A Markdown table: ends, expected and measured slope of each axis."""
  head = ['time a round against', 'from', 'to', 'ms', 'ms']
  head += ['expected slope', 'measured', 'standard error', 'why']
  lines = []
  for result in results:
    axis, (mean, error) = result.axis, scale.slope(result)
    middle = 1e3 * np.median(result.seconds, axis=0)
    xs = list(axis.points)
    line = [axis.label, f'{xs[0]:,}', f'{xs[-1]:,}']
    line += [f'{middle[i]:,.4g}' for i in (0, -1)]
    line += [f'{axis.expected:g}', f'{mean:.2f}', f'{error:.2f}', axis.why]
    lines.append(line)
  return markdown.table(head, lines, left=1)


def sketch_table(result: sketch.Result) -> str:
  """Return tables of a point: times and ratios, then relative speeds."""
  d, b, clients = result.point
  read, copy = _medians(result.rows[0])
  size = 4 * d * clients
  head = ['contestant', 'work', 'sketch ms (min)', '÷ read']
  head += ['desketch ms (min)', '÷ copy', 'GB/s']
  lines = []
  for row in result.rows:
    down, up = _medians(row)
    line = [row.name, row.work, _milliseconds(row.sketch), f'{down / read:.2f}']
    line += [_milliseconds(row.desketch), f'{up / copy:.2f}']
    lines.append([*line, f'{size / 1e9 / down:.2f}'])
  text = f'd = {d:,}, b = {b:,}, clients = {clients}\n\n'
  text += markdown.table(head, lines, left=2)
  if result.skipped:
    text += f'\nOver {sketch.MOST_ENTRIES:,} entries of a matrix, left out: '
    text += f'{", ".join(result.skipped)}.\n'
  return text + _faster_table(result)


def link_table(result: slow_link.Result) -> str:
  """A Markdown table; a contestant beats a dense one below so many Mbit/s."""
  rows = {row.contestant: row for row in result.rows}
  dense = [rows[name] for name in slow_link.DENSE if name in rows]
  rates = list(result.rows[0].seconds)
  head = [f'{result.processes} processes', 'kB out of one per step']
  head += [f's at {x} Mbit/s' if x < np.inf else 's, loopback' for x in rates]
  head += ['s without link', *(f'beats {x.contestant} below' for x in dense)]
  lines = []
  for row in result.rows:
    seconds = [statistics.median(x) for x in row.seconds.values()]
    line = [row.contestant, f'{row.sent / 1e3:,.1f}']
    line += [f'{x:.3g}' for x in [*seconds, row.compute]]
    line += [f'{slow_link.break_even(row, x):,.3g}' for x in dense]
    lines.append(line)
  return markdown.table(head, lines, left=1)


def gpu_tables(results: Sequence[gpu.Result]) -> str:
  """Markdown tables: codecs of each d, methods of the decoder, rounds."""
  texts, trained = [], []
  for part, name, numbers in results:
    if numbers is None:
      texts.append(f'Left out, the budget was spent: {part}, {name}.\n')
    elif part == 'codecs':
      texts.append(_codec_table(numbers))
    elif part == 'rounds':
      texts.append(f'{name}\n\n{round_table(numbers)}\n')
    else:
      trained.append([name, *_trained_cells(numbers)])
  if trained:
    head = ['decoder', 'parameters', 'steps per second', 'training loss']
    head += ['peak GiB', 'kB up per step', 'kB down per step']
    texts.append(markdown.table(head, trained, left=1))
  return '\n'.join(texts)


def _codec_table(numbers):
  copy = statistics.median(numbers['seconds']['copy']['decode'])
  head = [f'{numbers["d"]:,} numbers', 'encode ms', '÷ copy']
  lines = []
  for name, seconds in numbers['seconds'].items():
    line = [name]
    for way in 'encode', 'decode':
      took = statistics.median(seconds[way])
      line += [f'{1e3 * took:.3g}', f'{took / copy:.3g}']
    # The first one reads, and then copies.
    lines.append([name, '', '', *line[3:]] if name == 'copy' else line)
  text = markdown.table([*head, 'decode ms', '÷ copy'], lines, left=1)
  slow = ', '.join(numbers['left_out'])
  return f'{text}\nLeft out, too slow: {slow}.\n' if slow else text


def _trained_cells(numbers):
  peak = numbers['peak_bytes']
  return [
    f'{numbers["parameters"]:,}', f'{numbers["steps_per_second"]:.3g}',
    f'{numbers["train_loss"]:.3f}', f'{peak / 2**30:.3g}' if peak else '—',
    f'{numbers["bytes_up"] / 1e3:,.1f}', f'{numbers["bytes_down"] / 1e3:,.1f}',
  ]  # fmt: skip


def _faster_table(result):
  """Compare operators with textbook and library entries of the same work."""
  head = 'operator', 'times as fast as', 'sketch', 'sketch + desketch'
  lines = []
  for ours, other in itertools.product(result.rows, result.rows):
    peer = other.kind in ('textbook', 'library')
    if ours.kind == 'operator' and peer and ours.work == other.work:
      (ours_down, ours_up), (down, up) = map(_medians, (ours, other))
      both = (down + up) / (ours_down + ours_up)
      ratios = f'{down / ours_down:.2f}', f'{both:.2f}'
      lines.append((ours.name, other.name, *ratios))
  return '\n' + markdown.table(head, lines, left=2) if lines else ''


def _medians(row):
  """Return median seconds of sketch and desketch."""
  return statistics.median(row.sketch), statistics.median(row.desketch)


def _milliseconds(seconds):
  middle, least = (1e3 * f(seconds) for f in (statistics.median, min))
  return f'{middle:.3g} ({least:.3g})'


def write_rounds(
  workloads: Mapping[str, Mapping[str, Sequence[float]]], out: pathlib.Path
) -> list[pathlib.Path]:
  """Write round.json: seconds a round, [workload][contestant][process]."""
  return [_write(out, 'round', {'workloads': workloads})]


def write_scales(
  results: Sequence[scale.Result], out: pathlib.Path
) -> list[pathlib.Path]:
  """Write scale.json and scale.md; create the folder."""
  axes = []
  for result in results:
    axis, (mean, error) = result.axis, scale.slope(result)
    about = dict(label=axis.label, expected=axis.expected, why=axis.why)
    about |= dict(xs=list(axis.points), seconds=result.seconds)
    axes.append({'name': result.name, **about, 'mean': mean, 'error': error})
  path = _write(out, 'scale', {'axes': axes})
  files.write(out / 'scale.md', scale_table(results))
  return [path, out / 'scale.md']


def write_sketches(
  results: Sequence[sketch.Result], out: pathlib.Path
) -> list[pathlib.Path]:
  """Write sketch.json; create the folder."""
  points = []
  for result in results:
    rows = [row._asdict() for row in result.rows]
    lists = {'rows': rows, 'skipped': result.skipped}
    points.append(result.point._asdict() | lists)
  return [_write(out, 'sketch', {'points': points})]


def write_links(
  results: Sequence[slow_link.Result], out: pathlib.Path
) -> list[pathlib.Path]:
  """Write slow_link.json and slow_link.md; create the folder."""
  points = []
  for result in results:
    rows = [r._asdict() | {'compute': r.compute} for r in result.rows]
    points.append(result._asdict() | {'rows': rows})
  path = _write(out, 'slow_link', {'points': points})
  files.write(out / 'slow_link.md', '\n'.join(map(link_table, results)))
  return [path, out / 'slow_link.md']


def write_gpu(
  results: Sequence[gpu.Result], out: pathlib.Path, *, quick: bool, budget: int
) -> list[pathlib.Path]:
  """Write gpu.json and gpu.md; create the folder."""
  measured = [r._asdict() for r in results if r.numbers is not None]
  left_out = [[r.part, r.name] for r in results if r.numbers is None]
  about = {'platform': jax.default_backend(), 'quick': quick, 'budget': budget}
  about |= {'results': measured, 'left_out': left_out}
  path = _write(out, 'gpu', about)
  files.write(out / 'gpu.md', gpu_tables(results))
  return [path, out / 'gpu.md']


def _write(
  out: pathlib.Path, name: str, measurements: Mapping[str, Any]
) -> pathlib.Path:
  """Write a JSON of measurements and of where they were made."""
  out.mkdir(parents=True, exist_ok=True)
  report = files.measured_with()
  for library in ('scipy', 'scikit-learn'):
    report['versions'][library] = metadata.version(library)
  report |= {'cores': devices.cores(), **measurements}
  files.write(out / f'{name}.json', report)
  return out / f'{name}.json'
