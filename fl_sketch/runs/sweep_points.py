"""The points of a sweep: a grid of listed values, and random draws."""

from collections.abc import Mapping
import dataclasses
import itertools
import math
import typing
from typing import Any, NamedTuple

from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.fields.registries import MAPPINGS, REGISTRIES
from fl_sketch.utils import fields as fields_lib, seeding
import numpy as np


class Point(NamedTuple):
  """One run of a sweep."""

  values: dict[str, Any]  # of the swept fields; of a sketch 'sketch.OPTION'
  config: Config  # of the run, as `launch.train` would take it


@checked()
def points(config: Mapping[str, Any] | Config) -> list[Point]:
  r"""List the points of the `sweep` of a config, or of its fields.

  Seeds vary fastest. A field has a tuple of values, or a range {'low': l,
  'high': h} from which ``sweep['draws']`` settings are drawn, jointly for all
  ranges: :math:`\exp U(\log l, \log h)`, to four digits.

  >>> sweep = {'client_lr': (0.1, 0.3), 'sketch': {'size': (30, 60)}}
  >>> c = {'algorithm': 'safl', 'sketch': {'kind': 'srht'}, 'sweep': sweep}
  >>> [point.values for point in points(c)][1]
  {'client_lr': 0.1, 'sketch.size': 60}

  Raises ConfigError, which names the field.
  """
  if not isinstance(config, Config):
    config = Config.from_mapping(config)
  swept = dict(config.sweep or {})
  draws = swept.pop('draws', None)
  axes = {}
  for name, values in swept.items():
    nested = name in MAPPINGS and isinstance(values, Mapping)
    options = values if nested else {'': values}
    axes |= {f'{name}.{k}'.rstrip('.'): v for k, v in options.items()}
  axes = dict(sorted(axes.items(), key=lambda item: item[0] in seeding.FIELDS))
  if not axes:
    example = "--config.sweep.client_lr='(0.1, 0.3)'"
    raise ValueError(f'Set values of a field to sweep, such as {example}.')
  ranges = {k: v for k, v in axes.items() if isinstance(v, Mapping)}
  if ranges and draws is None:
    raise ValueError(f'Set sweep.draws: {list(ranges)} have ranges.')
  drawn = [{}] if draws is None else _draw(ranges, draws)
  listed = {k: v for k, v in axes.items() if k not in ranges}
  for name, values in listed.items():
    if not isinstance(values, tuple | list):
      raise ValueError(f'sweep.{name}={values!r} must be a tuple.')
    if not values or len({str(v) for v in values}) < len(values):
      text = 'must have values, each of them once.'
      raise ValueError(f'sweep.{name}={values!r} {text}')
  grid, rows = [], itertools.product(*listed.values())
  for some, rest in itertools.product(drawn, rows):
    values = some | dict(zip(listed, rest, strict=True))
    values = {name: values[name] for name in axes}
    grid.append(Point(values, _replace(config, values)))
  return grid


def _draw(ranges, draws):
  """Draw values of the ranged fields; more draws extend the same sequence."""
  if not isinstance(draws, int) or draws < 1:
    raise ValueError(f'sweep.draws={draws!r} must be >= 1.')
  if not ranges:
    one = "{'low': ..., 'high': ...}"
    raise ValueError(f'{draws=} requires a range {one}.')
  columns = {}
  for name, limits in ranges.items():
    if _type_of(name) is not float:
      raise ValueError(f'sweep.{name} is no float: list its values.')
    low, high = limits.get('low', 0), limits.get('high', 0)
    if len(limits) != 2 or not 0 < low < high < math.inf:
      raise ValueError(f'sweep.{name}={dict(limits)} must have 0 < low < high.')
    rng = seeding.generator(0, f'sweep {name}')
    logs = rng.uniform(math.log(low), math.log(high), draws)
    rounded = [float(f'{v:.4g}') for v in np.exp(logs)]
    columns[name] = [min(max(v, low), high) for v in rounded]
  rows = zip(*columns.values(), strict=True)
  return [dict(zip(columns, row, strict=True)) for row in rows]


def _type_of(name: str) -> type | None:
  """Return the type of a config field, or of the option FIELD.NAME."""
  field, _, option = name.partition('.')
  if option and field in REGISTRIES:
    return REGISTRIES[field][1].types().get(option)
  return fields_lib.plain_type(typing.get_type_hints(Config).get(name))


def _replace(config: Config, values: dict[str, Any]) -> Config:
  fields = dataclasses.asdict(config) | {'sweep': None}
  for name, value in values.items():
    field, _, option = name.partition('.')
    if option:
      value = {**(fields[field] or {}), option: value}
    fields[field] = value
  return Config.from_mapping(fields)
