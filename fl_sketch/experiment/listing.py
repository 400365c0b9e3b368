"""Lists the fields of a config, and the options of all registered factories."""

from collections.abc import Mapping
import dataclasses
import textwrap
import typing
from typing import Any

from fl_sketch import algorithms, codecs, models, sketches
from fl_sketch.data import registry as datasets
from fl_sketch.experiment.config import CALLS, MAPPINGS, Config
from fl_sketch.local import optimizers, schedules
from fl_sketch.models import lora, losses
from fl_sketch.utils import fields, registry

REGISTRIES: dict[str, tuple[str, registry.Registry]] = {
  'dataset_options': ('dataset', datasets.REGISTRY),
  'model_options': ('model', models.REGISTRY),
  'lora': ('lora.kind', lora.REGISTRY),
  'client_schedule': ('client_schedule.kind', schedules.REGISTRY),
  'local_optimizer': ('local_optimizer.kind', optimizers.REGISTRY),
  'options': ('algorithm', algorithms.REGISTRY),
  'sketch': ('sketch.kind', sketches.REGISTRY),
  'codec': ('codec.kind', codecs.REGISTRY),
  'downlink': ('downlink.kind', codecs.REGISTRY),
}


def text(values: Mapping[str, Any]) -> str:
  """Lists fields with their values, and what each nested field may hold.

  >>> 'fedprox(mu=0.01)' in text({'algorithm': 'fedprox'})
  True

  Args:
    values: of the fields that are set.
  """
  hints = typing.get_type_hints(Config, include_extras=True)
  lines = ['Fields, with their values here and their types:']
  for field in dataclasses.fields(Config):
    if field.name not in MAPPINGS:
      value = values.get(field.name, field.default)
      kind = fields.plain_type(hints[field.name]).__name__
      lines.append(f'  --config.{field.name}={value!r}  {kind}')
  for field, (named_by, parts) in REGISTRIES.items():
    lines += ['', f'--config.{field}.OPTION=VALUE, by --config.{named_by}:']
    lines += [_wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', f'--config.loss=NAME: {", ".join(losses.names())}']
  return '\n'.join(lines)


def factories(c: Config) -> list[Any]:
  """The registered factories that a config names."""
  named = [
    (algorithms.REGISTRY, c.algorithm),
    (datasets.REGISTRY, c.dataset),
    (models.REGISTRY, c.model),
    (losses.REGISTRY, c.loss),
    *(
      (REGISTRIES[field][1], options['kind'])
      for field in CALLS
      if (options := getattr(c, field)) is not None
    ),
  ]
  return [parts.entry(name).factory for parts, name in named]


def _wrapped(call: str) -> str:
  return textwrap.fill(
    call, 80, initial_indent='  ', subsequent_indent='      '
  )
