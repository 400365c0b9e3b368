"""Maps former names of config fields, options and losses to current ones."""

from collections.abc import Iterable, Mapping
from typing import Any
import warnings

from fl_sketch.utils import registry, renamed

# Old path -> new path. A path is FIELD or FIELD.OPTION.
PATHS = {
  'lanes_per_step': 'clients_per_step',
  'downlink': 'downlink_codec',
  'local_optimizer.keep': 'local_optimizer.keep_state',
  'codec.keep': 'codec.num_coordinates',
  'downlink_codec.keep': 'downlink_codec.num_coordinates',
  **{
    name: f'options.{name}'
    for name in (
      'k', 'exact', 'printed', 'clip', 'control_gain', 'noise_stddev',
      'candidates', 'error_update', 'momentum_masking', 'local_k',
      'error_feedback', 'sync_probability', 'warmup', 'mask_ratio', 'graph',
      'gossip_steps', 'chebyshev', 'resync_every',
    )
  },
  'widths': 'model_options.widths',
  'store': 'dataset_options.folder',
  'text_length': 'dataset_options.length',
  'vocabulary': 'dataset_options.vocabulary',
  'tokenizer': 'dataset_options.tokenizer',
  'start_scale': 'dataset_options.start_scale',
}  # fmt: skip
REMOVED = {
  'noise_generator': 'ChaCha20 draws from a secret, threefry from a noise_seed'
}
LOSSES = {'classes': 'cross_entropy', 'labels': 'multilabel'}
_FLAG = '--config.'


def current(
  fields: Mapping[str, Any], *, stored: bool = False
) -> dict[str, Any]:
  """Returns the fields of a config under their current names.

  Each old name gives one warning. An old field that is None is left out, as is
  one that was removed. In a `stored` config.json an old value is the new one.

  >>> import warnings
  >>> with warnings.catch_warnings(action='ignore'):
  ...   current({'downlink': 'eden(keep=4)', 'k': None})
  {'downlink_codec': {'kind': 'eden', 'num_coordinates': 4}}
  """
  found = dict(fields)
  if stored and found.get('public_metrics') == 'none':
    found['public_metrics'] = 'hidden'
  for name, why in REMOVED.items():
    if found.pop(name, None) is not None:
      warnings.warn(f'{name} has no effect: {why}.', FutureWarning, 4)
  for old, new in PATHS.items():
    if (value := _pop(found, *old.split('.'))) is not None:
      renamed.warn('config field', old, new, stacklevel=5)
      field, *option = new.split('.')
      if option:
        value = {**(found.get(field) or {}), option[0]: value}
      found[field] = value
  if isinstance(found.get('loss'), str):
    found['loss'] = loss(found['loss'])
  if isinstance(found.get('sweep'), Mapping):
    found['sweep'] = current(found['sweep'])
  return found


def current_flags(argv: Iterable[str]) -> list[str]:
  """Returns the arguments of a command with the current names of fields.

  >>> current_flags(['train', '--config.client_lr=0.1'])
  ['train', '--config.client_lr=0.1']
  """
  found = []
  for flag, equals, value in (x.partition('=') for x in argv):
    path = flag.removeprefix(_FLAG)
    if path != flag and path in REMOVED:
      warnings.warn(f'{flag} has no effect: {REMOVED[path]}.', FutureWarning, 3)
      continue
    for old, new in PATHS.items() if path != flag else ():
      if f'{path}.'.startswith(f'{old}.'):
        path = new + path[len(old) :]
        renamed.warn('flag', flag, _FLAG + path)
    found.append((_FLAG + path if path != flag else flag) + equals + value)
  return found


def loss(name: Any) -> Any:
  """Returns the current name of a loss; a function as it is."""
  if name in LOSSES:
    renamed.warn('loss', name, LOSSES[name])
  return LOSSES.get(name, name)


def _pop(fields: dict[str, Any], field: str, option: str = '') -> Any:
  """Pops a config field, or an option of it; None if it is absent."""
  if not option:
    return fields.pop(field, None)
  options = fields.get(field)
  if isinstance(options, str) and f'{option}=' in options:
    options = registry.parse_call(options)
  if not isinstance(options, Mapping) or option not in options:
    return None
  if 'codec' in field and options.get(registry.KIND) != 'eden':
    return None  # another codec's own option
  fields[field] = {k: v for k, v in options.items() if k != option}
  return options[option]
