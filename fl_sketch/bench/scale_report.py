"""Table, figure and JSON of the scaling benchmark."""

from collections.abc import Sequence
import pathlib

from fl_sketch import reporting
from fl_sketch.bench import scale
from fl_sketch.training import devices
from fl_sketch.utils import extras, files, markdown
import numpy as np

_COLOUR = '#0072b2'  # of Okabe and Ito (2008)


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
    _draw(results).savefig(out / 'scale.png', dpi=150)
  paths = [out / f'scale.{kind}' for kind in ('json', 'md', 'png')]
  return [path for path in paths if path.exists()]


def _draw(results):
  """Draws one panel per axis; dashed lines have the expected slope."""
  fig = reporting.new_figure(3.4 * len(results), 3.4)
  panels = fig.subplots(1, len(results), squeeze=False)[0]
  for ax, result in zip(panels, results, strict=True):
    _panel(ax, result)
  panels[0].set_ylabel('ms a round: median, least, most')
  return fig


def _panel(ax, result):
  xs, seconds = np.array(result.xs, float), 1e3 * np.array(result.seconds)
  low, middle, high = (f(seconds, axis=0) for f in (np.min, np.median, np.max))
  away = np.log(xs) - np.log(xs).mean()
  line = np.exp(np.log(middle).mean() + result.expected * away)
  ax.plot(xs, line, '--', color='0.6', label=f'slope {result.expected:g}')
  slope = scale.slope(result)
  label = f'measured {slope.mean:.2f} ± {slope.error:.2f}'
  spread = [middle - low, high - middle]
  ax.errorbar(
    xs, middle, spread, fmt='o-', color=_COLOUR, markersize=4, label=label
  )
  ax.set(xscale='log', yscale='log', xlabel=result.label)
  ends = xs[[0, -1]]
  ax.set_xticks(ends, [f'{x:,.0f}' for x in ends])
  least, most = min(low.min(), line.min()), max(high.max(), line.max())
  ax.set_ylim(least / 1.5, most * 2.5)  # the legend is at the top
  ax.set_yticks(np.geomspace(least, most, 4))
  ax.yaxis.set_major_formatter(lambda y, _: f'{y:.3g}')
  ax.minorticks_off()
  ax.spines[['top', 'right']].set_visible(False)
  ax.legend(frameon=False, fontsize='small', loc='upper left')
