"""A config: all fields of an experiment, checked when it is constructed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
import contextlib
import dataclasses
import inspect
import textwrap
import typing
from typing import Any

from fl_sketch.algorithms import server_optimizers
from fl_sketch.models import losses
from fl_sketch.runs.fields import method, privacy, registries
from fl_sketch.utils import UserError, checks, fields as f, plugins, registry

# Fields that may differ when a run is resumed: they change no round, except
# that clients_per_step changes rounding. See `same_run.resumable`.
RESUMABLE = (
  'rounds', 'clients_per_step', 'log_every', 'eval_every', 'checkpoint_every',
  'keep_checkpoints', 'plugins',
)  # fmt: skip
_OF_CALLS = 'kind', 'contract', 'keep_state'  # and the options of a factory


class ConfigError(UserError, ValueError):
  """A config, or an option of a command, is wrong; the message names it."""


@contextlib.contextmanager
def checked() -> Iterator[None]:
  """Re-raise validation errors, see `checks.is_refusal`, as ConfigError."""
  try:
    yield
  except ValueError as e:
    if not checks.is_refusal(e):
      raise
    raise ConfigError(str(e)) from e


@dataclasses.dataclass(frozen=True)
class Config(privacy.PrivacyFields):
  """A config; a field that is None leaves the choice to the component.

  >>> Config(algorithm='safl', sketch='srht(size=9)')
  Config(algorithm='safl', sketch={'kind': 'srht', 'size': 9})

  Raises ConfigError, which names field and value, if a field is out of range,
  names a part that does not exist, or contradicts another.
  """

  def __new__(cls, *_: Any, **fields: Any) -> 'Config':
    """Refuse unknown names, with the nearest field."""
    names = [field.name for field in dataclasses.fields(cls)]
    for name in fields:
      if name not in names:
        hint = f.did_you_mean(name, names)
        raise ConfigError(f'Unknown config field {f.shown(name)}.{hint}')
    return super().__new__(cls)

  @checked()
  def __post_init__(self):
    for name in registries.MAPPINGS:
      value = getattr(self, name)
      if name in registries.CALLS and isinstance(value, str):
        value = registry.parse_call(value, name)
      object.__setattr__(self, name, registries.not_none(value))
    self.check()

  def __repr__(self) -> str:
    changed = ', '.join(
      f'{x.name}={value!r}'
      for x in dataclasses.fields(self)
      if (value := getattr(self, x.name)) not in (x.default, [])  # JSON's ()
    )
    return f'Config({changed})'

  @classmethod
  @checked()
  def from_mapping(cls, fields: Any) -> 'Config':
    """Build a config from a mapping, or a ConfigDict, after its plug-ins."""
    fields = fields.to_dict() if hasattr(fields, 'to_dict') else fields
    named = fields.get('plugins')
    for plugin in named if isinstance(named, tuple | list) else ():
      if isinstance(plugin, str):
        plugins.load(plugin)
    return cls(**fields)


def help_text(values: Mapping[str, Any]) -> str:
  """Return the list of fields with values, types, rules and meanings."""
  hints = typing.get_type_hints(Config, include_extras=True)
  wrapped = textwrap.TextWrapper(80, '  ', ' ' * 6).fill
  indented = textwrap.TextWrapper(80, ' ' * 6, ' ' * 6).fill
  lines = ['Fields, with their values here, their types and meanings:']
  for group, meanings in sections(Config):
    lines += ['', group]
    for name, meaning in meanings.items():
      value = values.get(name, getattr(Config, name))
      kind = f.plain_type(hints[name]).__name__
      kind = 'options' if name in registries.MAPPINGS else kind
      lines.append(f'  --config.{name}={value!r}  {kind}')
      if about := '; '.join(filter(None, (meaning, allowed(hints[name])))):
        lines.append(indented(about))
  for field, (named_by, parts) in registries.REGISTRIES.items():
    lines += ['', f'--config.{field}.OPTION=VALUE, by --config.{named_by}:']
    lines += [wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', '--config.server_optimizer=NAME or NAME(OPTION=VALUE):']
  parts = server_optimizers.REGISTRY
  lines += [wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', f'--config.loss=NAME: {", ".join(losses.names())}']
  return '\n'.join(lines)


def allowed(hint: Any) -> str:
  """Return the conditions on a value, at any depth of its annotation."""
  rules = [x for x in getattr(hint, '__metadata__', ()) if type(x) is f.Rule]
  inner = map(allowed, typing.get_args(hint))
  return '; '.join(filter(None, [*(rule.text for rule in rules), *inner]))


def sections(cls: type) -> list[tuple[str, dict[str, str]]]:
  """Return groups of fields by class or section: title, field -> meaning."""
  groups: list[tuple[str, dict[str, str]]] = []
  metadata = {field.name: field.metadata for field in dataclasses.fields(cls)}
  for group in reversed(inspect.getmro(cls)):
    title = (inspect.getdoc(group) or '').partition('\n')[0]
    for i, name in enumerate(inspect.get_annotations(group)):
      if i == 0 or metadata[name].get('section'):
        groups.append((metadata[name].get('section') or title, {}))
      groups[-1][1][name] = metadata[name].get('doc', '')
  return groups


@checked()
def switched(
  fields: Mapping[str, Any], given: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
  """Leave out options that a new algorithm, sketch ... does not take.

  >>> fields = {'algorithm': 'fedavg', 'sketch': {'kind': 'srht', 'size': 9}}
  >>> switched(fields, ['algorithm'])[1]
  ['sketch']

  Fields `given` by the command line, nested ones with a dot, stay, except that
  'none' unsets them. Return the fields without those that are left out, in the
  sweep too, and the names of these. Raises ConfigError if there is no
  algorithm, sketch ... of that name.
  """
  fields = {k: registries.not_none(value) for k, value in fields.items()}
  _unset(fields, given)
  left_out = []
  for name in [*_useless(fields, given)]:
    for path in name, f'sweep.{name}':
      *parents, option = path.split('.')
      options = _at(fields, parents)
      is_given = any(_overlap(path, other) for other in given)
      if _at(options, [option]) is not None and not is_given:
        options[option] = None
        left_out.append(path)
  return fields, sorted(left_out)


def _useless(fields: dict[str, Any], given: Collection[str]) -> Iterator[str]:
  """Yield the fields, and FIELD.OPTION, that the given parts do not take."""
  sweep = fields.get('sweep') or {}
  for field, (named_by, parts) in registries.REGISTRIES.items():
    called = field in registries.CALLS and field in given
    if named_by not in given and not called:
      continue
    name = _at(fields, named_by.split('.'))
    if name is None:
      yield field
      continue
    known = {*parts.options(name), *_OF_CALLS}
    for options in fields.get(field), sweep.get(field):
      # A sweep may have a tuple of whole sketches, which name their kinds.
      if isinstance(options, dict):
        yield from (f'{field}.{option}' for option in {*options} - known)
  if 'algorithm' in given or 'server_optimizer' in given:
    algorithm = fields.get('algorithm', 'fedavg')
    optimizer = fields.get('server_optimizer')
    if 'server_optimizer' in method.without_effect(algorithm, optimizer):
      optimizer = None  # it leaves, and its options with it
    for field in method.without_effect(algorithm, optimizer):
      if 'algorithm' in given or field in method.OPTIMIZER_OPTIONS:
        yield field


def _at(tree: Any, path: Iterable[str]) -> Any:
  """Return what a nested mapping has at a path; None if there is nothing."""
  for name in path:
    tree = tree.get(name) if isinstance(tree, dict) else None
  return tree


def _overlap(one: str, other: str) -> bool:
  """Return whether one of two names is the other or a part of it."""
  one, other = f'{one}.', f'{other}.'
  return one.startswith(other) or other.startswith(one)


def _unset(fields: dict[str, Any], given: Collection[str]):
  """Set to None what is given as 'none', as a text or a tuple."""
  holders = fields, fields.get('sweep') or {}
  noise = 'epsilon', 'noise_multiplier'
  is_private = any(h.get(k) is not None for h in holders for k in noise)
  for path in given:
    *parents, name = path.split('.')
    holder = _at(fields, parents)
    if not isinstance(holder, dict):
      continue
    if f'{holder.get(name)}' in ('none', "('none',)"):
      holder[name] = None
    if name == 'public_metrics' and holder.get(name) is None and is_private:
      raise ValueError(f"{path}=none: set 'hidden' or 'all'.")
