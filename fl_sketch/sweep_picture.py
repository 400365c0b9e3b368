"""The picture of a sweep: a curve, a heat-map, or the points of draws."""

from collections.abc import Sequence
import json
import math
import pathlib
from typing import Any

from matplotlib import axes
from matplotlib import figure
import numpy as np

_MANY = 12  # values of a field; with more, a heat-map would have tiny cells


def draw(
  settings: Sequence[Any], metric: str, larger: bool, path: pathlib.Path
):
  """Draws one field as a curve, two as a heat-map; nothing without numbers.

  Of more than two fields, those with the most values; at each of their values
  the best over the others. Two fields with many values, as drawn ones have, are
  points with the metric as their colour.

  Args:
    settings: `sweep_report.Setting`s, best first.
    metric: its name.
    larger: whether a larger one is better.
    path: of the PNG.
  """
  values = {k: _distinct(settings, k) for k in settings[0].values}
  names = [k for k in values if len(values[k]) > 1]
  names = sorted(names, key=lambda k: -len(values[k]))[:2]
  if not names or all(math.isnan(s.mean) for s in settings):
    return
  fig = figure.Figure(figsize=(6, 4.2), layout='constrained')
  ax = fig.add_subplot()
  label = metric.replace('_', ' ')
  if len(names) < len(settings[0].values):
    label += ', best over the other fields'
  best = _best(settings, names)
  if len(names) == 1:
    _curve(ax, best, values[names[0]], names[0])
    ax.set_ylabel(label)
  else:
    small = all(len(values[k]) <= _MANY for k in names)
    drawn = _heat_map if small else _scatter
    image = drawn(ax, best, [values[k] for k in names], names, larger)
    fig.colorbar(image, label=label)
  fig.savefig(path, dpi=150)


def _distinct(settings, name) -> list:
  found = {json.dumps(s.values[name]): s.values[name] for s in settings}
  numbers = all(_is_number(v) for v in found.values())
  return sorted(found.values()) if numbers else list(found.values())


def _is_number(value) -> bool:
  return isinstance(value, int | float)


def _best(settings, names) -> list:
  """The first setting at each of the values of these fields, in any order."""
  found = {}
  for s in settings:
    found.setdefault(json.dumps([s.values[k] for k in names]), s)
  return list(found.values())


def _curve(ax: axes.Axes, best, values, name):
  best = sorted(best, key=lambda s: values.index(s.values[name]))
  numbers = all(_is_number(v) for v in values)
  xs = values if numbers else range(len(values))
  error = [0 if math.isnan(s.error) else s.error for s in best]
  ax.errorbar(
    list(xs), [s.mean for s in best], error, marker='o', capsize=3,
    color='#0072b2',
  )  # fmt: skip
  if not numbers:
    ax.set_xticks(list(xs), [str(v) for v in values])
  elif _is_wide(values):
    ax.set_xscale('log')
  ax.set_xlabel(name)
  ax.spines[['top', 'right']].set_visible(False)
  ax.grid(color='0.9')


def _is_wide(values) -> bool:
  """Whether an axis should be logarithmic."""
  return 0 < 10 * min(values) < max(values)


def _heat_map(ax: axes.Axes, best, values, names, larger):
  cells = np.full([len(v) for v in values], np.nan)
  for s in best:
    at = [v.index(s.values[k]) for k, v in zip(names, values, strict=True)]
    cells[tuple(at)] = s.mean
  image = ax.imshow(
    cells, cmap='viridis' if larger else 'viridis_r', aspect='auto'
  )
  middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
  dark = lambda v: v < middle if larger else v > middle
  for at, value in np.ndenumerate(cells):
    ax.text(
      at[1],
      at[0],
      'diverged' if math.isnan(value) else f'{value:.3g}',
      ha='center',
      va='center',
      fontsize='small',
      color='white' if dark(value) else 'black',
    )
  text = [[f'{v:.3g}' if _is_number(v) else str(v) for v in k] for k in values]
  ax.set_yticks(range(len(text[0])), text[0])
  ax.set_xticks(range(len(text[1])), text[1])
  ax.set(ylabel=names[0], xlabel=names[1])
  return image


def _scatter(ax: axes.Axes, best, values, names, larger):
  ys, xs = ([s.values[k] for s in best] for k in names)
  colours = [s.mean for s in best]
  image = ax.scatter(
    xs, ys, c=colours, cmap='viridis' if larger else 'viridis_r', s=60,
    plotnonfinite=True,
  )  # fmt: skip
  for set_scale, found in zip(
    (ax.set_yscale, ax.set_xscale), values, strict=True
  ):
    if all(_is_number(v) for v in found) and _is_wide(found):
      set_scale('log')
  ax.set(ylabel=names[0], xlabel=names[1])
  return image
