"""The registered parts that a config names, and the fields of their options."""

from collections.abc import Mapping
from typing import Any

from fl_sketch import algorithms, codecs, data as datasets, models, sketches
from fl_sketch.local import optimizers, schedules
from fl_sketch.models import lora, losses
from fl_sketch.utils import fields as f, registry

_OF_SERVER = codecs.REGISTRY.called('downlink_codec')
_OF_SERVER_RATE = schedules.REGISTRY.called('server_schedule')
# Field of the options -> (the field that names the factory, its registry).
REGISTRIES: dict[str, tuple[str, registry.Registry]] = {
  'dataset_options': ('dataset', datasets.REGISTRY),
  'model_options': ('model', models.REGISTRY),
  'lora': ('lora.kind', lora.REGISTRY),
  'client_schedule': ('client_schedule.kind', schedules.REGISTRY),
  'server_schedule': ('server_schedule.kind', _OF_SERVER_RATE),
  'local_optimizer': ('local_optimizer.kind', optimizers.REGISTRY),
  'options': ('algorithm', algorithms.REGISTRY),
  'sketch': ('sketch.kind', sketches.REGISTRY),
  'codec': ('codec.kind', codecs.REGISTRY),
  'downlink_codec': ('downlink_codec.kind', _OF_SERVER),
}
# Fields that name their factory themselves, also as 'srht(size=60)'.
CALLS = tuple(k for k, (by, _) in REGISTRIES.items() if by.endswith('.kind'))
# Fields of one level of nesting: options of what another field names.
MAPPINGS = (*REGISTRIES, 'sweep')
Part = tuple[registry.Registry, str, dict[str, Any]]  # its name, its options


def named(config: Any) -> dict[str, Part]:
  """Return every part of a config by its field.

  Options that only a sweep gives have the first of their values.
  """
  parts = {'loss': (losses.REGISTRY, config.loss, {})}
  for field, (named_by, known) in REGISTRIES.items():
    options = dict(getattr(config, field) or {})
    if field not in CALLS:
      field_of_name, name = named_by, getattr(config, named_by)
    elif not options:
      continue
    elif registry.KIND in options:
      field_of_name, name = field, options.pop(registry.KIND)
    else:
      raise ValueError(
        f'{field}={f.shown(options)} has no kind; set {field}.kind to one of '
        f'{f.listed("", known.names())}.'
      )
    options = _swept(config, field, known, name) | options
    parts[field_of_name] = known, name, options
  return parts


def _swept(
  config: Any, field: str, known: registry.Registry, name: Any
) -> dict[str, Any]:
  """Return the options of a sweep, each with the first of its values."""
  swept = (config.sweep or {}).get(field)
  if not isinstance(swept, Mapping) or name not in known.names():
    return {}
  first, takes = {}, known.options(name)
  for option, values in swept.items():
    if option not in takes:
      continue
    if isinstance(values, Mapping) and values:
      first[option] = values.get('low')
    elif isinstance(values, tuple | list) and values:
      first[option] = values[0]
  return first


def check(config: Any):
  """Raise ValueError for a part that is not there, or not its options."""
  for field, (known, name, options) in named(config).items():
    own_options = {k: v for k, v in options.items() if k not in known.shared}
    known.check(name, own_options)
    for option, default in known.shared.items():
      if option in options:
        label = f'{known.kind} {name!r}: {option}'
        f.check_option(label, options[option], type(default))
    if field in ('sketch', 'codec', 'downlink_codec'):
      try:  # to make it checks what annotations do not say
        known.make(name, **own_options)
      except ValueError as e:
        raise ValueError(f'{known.kind} {name!r}: {e}') from e


def normalized(name: str, value: Any) -> Any:
  """Return a field of a mapping, as it stands in a `Config`."""
  if name in CALLS and isinstance(value, str):
    try:
      value = registry.parse_call(value)
    except ValueError as e:
      raise ValueError(f'{name}: {e}') from e
  return not_none(value)


def not_none(value: Any) -> Any:
  """Return a mapping without None, at any depth; None if nothing is left."""
  if not isinstance(value, Mapping):
    return value
  pruned = {k: not_none(v) for k, v in value.items()}
  return {k: v for k, v in pruned.items() if v is not None} or None
