"""The points of a sweep, and which of them share a program."""

from collections.abc import Mapping
import dataclasses
import itertools
import json
import math
import typing
from typing import Any, NamedTuple

from fl_sketch import algorithms, data as datasets
from fl_sketch.runs.build import OwnProblem
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.fields.registries import MAPPINGS, REGISTRIES
from fl_sketch.runs.method import declared
from fl_sketch.utils import fields as fields_lib, files, seeding
import numpy as np


class Point(NamedTuple):
  """One run of a sweep."""

  values: dict[str, Any]  # of the swept fields; of a sketch 'sketch.OPTION'
  config: Config  # of the run, as `fl-sketch train` would take it


Group = Mapping[int, Point]  # points of one program, by number


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
  listed = {k: v for k, v in axes.items() if k not in ranges}
  if bool(ranges) != (draws is not None):
    text = "Set sweep.draws and ranges {'low': ..., 'high': ...} together"
    raise ValueError(f'{text}; got {draws=} and ranges of {[*ranges]}.')
  for name, values in listed.items():
    if not isinstance(values, tuple | list):
      raise ValueError(f'sweep.{name}={values!r} must be a tuple.')
    if not values or len({str(v) for v in values}) < len(values):
      raise ValueError(f'sweep.{name}={values!r} must have distinct values.')
  drawn = _draw(ranges, draws) if ranges else [{}]
  grid = []
  for some, *rest in itertools.product(drawn, *listed.values()):
    found = some | dict(zip(listed, rest, strict=True))
    values = {name: found[name] for name in axes}
    grid.append(Point(values, _replace(config, values)))
  return grid


def _draw(ranges: dict[str, Mapping], draws: int) -> list[dict[str, float]]:
  """Draw values of the ranged fields; more draws extend the same sequence."""
  if not isinstance(draws, int) or draws < 1:
    raise ValueError(f'sweep.draws={draws!r} must be an integer >= 1.')
  columns = []
  for name, limits in ranges.items():
    if _type_of(name) is not float:
      raise ValueError(f'sweep.{name} is no float: list its values.')
    low, high = limits.get('low', 0), limits.get('high', 0)
    if len(limits) != 2 or not 0 < low < high < math.inf:
      raise ValueError(f'sweep.{name}={dict(limits)} must have 0 < low < high.')
    rng = seeding.generator(0, f'sweep {name}')
    values = np.exp(rng.uniform(math.log(low), math.log(high), draws))
    columns.append([min(max(float(f'{v:.4g}'), low), high) for v in values])
  rows = zip(*columns, strict=True)
  return [dict(zip(ranges, row, strict=True)) for row in rows]


def _type_of(name: str) -> type | None:
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


def groups(
  todo: Mapping[int, Point], problem: OwnProblem | None = None
) -> list[Group]:
  """Return the points that each program can run, by number."""
  by_program: dict[str, dict[int, Point]] = {}
  for i, point in todo.items():
    fields = files.as_json(point.config)
    for name in _array_fields(point.config, problem):
      field, _, option = name.partition('.')
      holder = fields if not option else (fields[field] or {})
      holder[option or field] = holder.get(option or field) is None
    by_program.setdefault(json.dumps(fields, sort_keys=True), {})[i] = point
  return [*by_program.values()]


def _array_fields(config: Config, problem: OwnProblem | None) -> set[str]:
  """Return config fields that a program takes as arrays; options with a dot."""
  names = {*algorithms.Hyper._fields, *seeding.FIELDS} - {'extra', 'frozen'}
  names |= declared(config).keys()
  if config.final_server_lr is not None:
    names.remove('server_lr')  # the schedule decays relative to it
  # Full batches and Poisson batches are as wide as the largest client.
  by_size = config.batch_size == 0 or config.batch_order == 'poisson'
  draws_data = 'seed' in datasets.REGISTRY.arguments(config.dataset)
  draws_data |= config.client_holdout > 0 or config.personal_steps is not None
  if draws_data or (by_size and config.partition != 'iid'):
    names.remove('seed')  # it draws the data, or the sizes of clients
  if callable(problem):  # its data and its model may depend on these
    names -= {'seed', *(n for n in names if n.startswith('model_options.'))}
  return names
