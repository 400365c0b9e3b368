"""The registered parts that a config names, and the fields of their options."""

from collections.abc import Mapping
from typing import Any

from fl_sketch import algorithms, codecs, models, sketches
from fl_sketch.data import registry as datasets
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
# Fields that name their factory themselves; a text such as 'srht(size=60)' will
# do in their place.
CALLS = tuple(k for k, (by, _) in REGISTRIES.items() if by.endswith('.kind'))
# Fields of one level of nesting: options of what another field names.
MAPPINGS = (*REGISTRIES, 'sweep')


def named(c: Any) -> dict[str, tuple[registry.Registry, str, dict[str, Any]]]:
  """Return field -> (registry, name, options) of every part of a config.

  Raises ValueError if a field has options, but no kind.
  """
  parts = {'loss': (losses.REGISTRY, c.loss, {})}
  for field, (name, known) in REGISTRIES.items():
    options = getattr(c, field)
    if field not in CALLS:
      factory = getattr(c, name)
      swept = _swept(c, field, known, factory)
      parts[name] = known, factory, swept | (options or {})
    elif options is not None:
      if registry.KIND not in options:
        raise ValueError(
          f'{field}={f.shown(dict(options))} has no kind; set {field}.kind to '
          f'one of {f.listed("", known.names())}.'
        )
      own = {k: v for k, v in options.items() if k != registry.KIND}
      factory = options[registry.KIND]
      parts[field] = known, factory, _swept(c, field, known, factory) | own
  return parts


def _swept(c, field, known, factory) -> dict[str, Any]:
  """The options that a sweep gives, each with the first of its values."""
  options = (c.sweep or {}).get(field)
  if not isinstance(options, Mapping) or factory not in known.names():
    return {}
  takes = known.options(factory)
  first = lambda x: x.get('low') if isinstance(x, Mapping) else x[0]
  several = {k: v for k, v in options.items() if v and k in takes}
  of_type = Mapping, tuple, list  # others are refused with the sweep
  return {k: first(v) for k, v in several.items() if isinstance(v, of_type)}


def check(c: Any):
  """Raises ValueError for a part that is not there, or not its options."""
  for field, (known, name, options) in named(c).items():
    own = {k: v for k, v in options.items() if k not in known.shared}
    known.check(name, own)
    for option, default in known.shared.items():
      if option in options:
        written = f'{known.kind} {name!r}: {option}'
        f.check_option(written, options[option], type(default))
    if field in ('sketch', 'codec', 'downlink_codec'):
      known.make(name, **own)  # it checks what annotations do not say


def normalized(name: str, value: Any) -> Any:
  """Return a field of a mapping, as it stands in a `Config`."""
  if name in CALLS and isinstance(value, str):
    value = registry.parse_call(value)
  return not_none(value)


def not_none(value: Any) -> Any:
  """Return what of a mapping is not None, at any depth, or None if all is."""
  if not isinstance(value, Mapping):
    return value
  kept = {k: not_none(v) for k, v in value.items()}
  return {k: v for k, v in kept.items() if v is not None} or None
