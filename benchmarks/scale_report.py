"""Table, figure and JSON of the scaling benchmark."""

from collections.abc import Sequence
import pathlib

from fl_sketch.reporting import figures
from fl_sketch.training import devices
from fl_sketch.utils import extras, files, markdown
import numpy as np

from . import scale


def table(results: Sequence[scale.Result]) -> str:
  """A Markdown table: ends, expected and measured slope of each axis."""
  head = ['time a round against', 'from', 'to', 'ms', 'ms']
  head += ['expected slope', 'measured', 'standard error', 'why']
  lines = []
  for result in results:
    slope, middle = scale.slope(result), 1e3 * medians(result)
    lines.append(
      (
        result.label,
        *(f'{result.xs[i]:,}' for i in (0, -1)),
        *(f'{middle[i]:,.4g}' for i in (0, -1)),
        f'{result.expected:g}',
        f'{slope.mean:.2f}',
        f'{slope.error:.2f}',
        result.why,
      )
    )
  return markdown.table(head, lines, left=1)


def medians(result: scale.Result) -> np.ndarray:
  """Median seconds a round at every point, f64[points]."""
  return np.median(result.seconds, axis=0)


def write(
  results: Sequence[scale.Result], out: pathlib.Path
) -> list[pathlib.Path]:
  """Writes scale.json, scale.md and scale.png; creates the folder."""
  out.mkdir(parents=True, exist_ok=True)
  axes = [r._asdict() | scale.slope(r)._asdict() for r in results]
  about = files.measured_with() | {'cores': devices.cores(), 'axes': axes}
  files.replace(out / 'scale.json', about)
  files.replace(out / 'scale.md', table(results))
  with extras.optional_figures():
    figures.draw(panels(results)).savefig(out / 'scale.png', dpi=150)
  paths = [out / f'scale.{kind}' for kind in ('json', 'md', 'png')]
  return [path for path in paths if path.exists()]


def panels(results: Sequence[scale.Result]) -> list[figures.Panel]:
  """Plots median, least and most ms on each axis, and the expected slope."""
  every = []
  for result in results:
    xs, times = np.array(result.xs, float), 1e3 * np.array(result.seconds)
    low, middle, high = (f(times, axis=0) for f in (np.min, np.median, np.max))
    away = np.log(xs) - np.log(xs).mean()
    line = np.exp(np.log(middle).mean() + result.expected * away)
    slope = scale.slope(result)
    title = f'slope {slope.mean:.2f} ± {slope.error:.2f}'
    title += f', expected {result.expected:g}'
    lines = [
      figures.Line('expected slope', xs, line, variant=1),
      figures.Line('median', xs, middle, low, high),
    ]
    labels = result.label, 'ms a round'
    every.append(
      figures.Panel(*labels, lines, title, x_scale='log', y_scale='log')
    )
  return every
