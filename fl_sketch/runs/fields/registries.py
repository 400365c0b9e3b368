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


def check(config: object):
  """Raise ValueError for a part that is not there, or not its options.

  Options that only a sweep gives are checked by the first of their values.
  """
  fields = vars(config)
  losses.REGISTRY.check(fields['loss'], {})
  for field, (named_by, known) in REGISTRIES.items():
    options = dict(fields[field] or {})
    if field not in CALLS:
      name = fields[named_by]
    elif not options:
      continue
    elif (name := options.pop(registry.KIND, None)) is None:
      raise ValueError(
        f'{field}={f.shown(options)} has no kind; set {field}.kind to one of '
        f'{f.listed("", known.names())}.'
      )
    swept = (fields['sweep'] or {}).get(field)
    takes = known.options(name)
    if isinstance(swept, Mapping):
      first = {k: _first(values) for k, values in swept.items() if k in takes}
      options = (not_none(first) or {}) | options
    own_options = {k: v for k, v in options.items() if k not in known.shared}
    known.check(name, own_options)
    for option in known.shared.keys() & options:
      label = f'{known.kind} {name!r}: {option}'
      f.check_option(label, options[option], type(known.shared[option]))
    if field in ('sketch', 'codec', 'downlink_codec'):
      try:  # to make it checks what annotations do not say
        known.make(name, **own_options)
      except ValueError as e:
        raise ValueError(f'{known.kind} {name!r}: {e}') from e


def _first(values: Any) -> Any:
  """Return the first of the values of a sweep; None if they are wrong."""
  if isinstance(values, Mapping):
    return values.get('low')
  return values[0] if isinstance(values, tuple | list) and values else None


def not_none(value: Any) -> Any:
  """Return a mapping without None, at any depth; None if nothing is left."""
  if not isinstance(value, Mapping):
    return value
  pruned = {k: not_none(v) for k, v in value.items()}
  return {k: v for k, v in pruned.items() if v is not None} or None
