"""A config: all fields of an experiment, checked when it is constructed.

For the command line: lists fields, and unsets what an override makes useless.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
import contextlib
import dataclasses
import functools
import inspect
import textwrap
import typing
from typing import Any

from fl_sketch import algorithms
from fl_sketch.algorithms import server_optimizers
from fl_sketch.experiment.fields import method, privacy, registries, run
from fl_sketch.models import losses
from fl_sketch.utils import checks, fields as f, plugins

# Fields that may differ when a run is resumed. They change no number of any
# round, but for clients_per_step, with which sums are equal up to rounding.
# `workdir.resumable` leaves out those on which something else depends.
RESUMABLE = (
  'rounds', 'clients_per_step', 'log_every', 'eval_every', 'checkpoint_every',
  'keep_checkpoints', 'plugins',
)  # fmt: skip
_Sections = list[tuple[str, list[tuple[str, str]]]]
_OF_CALLS = 'kind', 'contract', 'keep_state'  # beside the options of a factory


class ConfigError(ValueError):
  """A config, or an option of a command, is wrong; the message names it."""


@contextlib.contextmanager
def checked() -> Iterator[None]:
  """Re-raises this library's validation errors as ConfigError; a decorator.

  Every other ValueError passes as it is: it shows a defect.

  Raises:
    ConfigError: see `checks.is_refusal`.
  """
  try:
    yield
  except ValueError as e:
    if not checks.is_refusal(e):
      raise
    raise ConfigError(f.cut(str(e))) from e


@dataclasses.dataclass(frozen=True)
class Config(privacy.PrivacyFields):
  """A config; a field that is None leaves the choice to the component.

  >>> Config(algorithm='safl', sketch='srht(size=9)')
  Config(algorithm='safl', sketch={'kind': 'srht', 'size': 9})

  Raises:
    ConfigError: a field is out of range, names a part that does not exist, or
      contradicts another; the message names field and value.
  """

  def __new__(cls, *_: Any, **fields: Any) -> 'Config':
    """Refuses unknown names, of which `__init__` says nothing nearer."""
    _check_names(fields)
    return super().__new__(cls)

  @checked()
  def __post_init__(self):
    for name in registries.MAPPINGS:
      value = registries.normalized(name, getattr(self, name))
      object.__setattr__(self, name, value)
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
    """Builds a config from a mapping, or a ConfigDict, after its plug-ins.

    Raises:
      ConfigError: there is no such field, or as of `Config`.
    """
    fields = fields.to_dict() if hasattr(fields, 'to_dict') else fields
    if not isinstance(fields, Mapping):
      raise ValueError(
        f'config={f.shown(fields)} is of type '
        f'{type(fields).__name__}; pass a Config, or a mapping of its fields, '
        'such as get_config() of a bundled config.'
      )
    _check_names(fields)
    if isinstance(named := fields.get('plugins'), tuple | list):
      for plugin in (name for name in named if isinstance(name, str)):
        plugins.load(plugin)
    return cls(**fields)


def _check_names(fields: Iterable[Any]):
  names = [field.name for field in dataclasses.fields(Config)]
  for name in fields:
    if name not in names:
      hint = f.did_you_mean(name, names)
      raise ConfigError(f'Unknown config field {f.shown(name)}.{hint}')


def help_text(values: Mapping[str, Any]) -> str:
  """Lists fields with values, types, allowed values and meanings, by group.

  >>> 'fedprox(mu=0.01)' in help_text({'algorithm': 'fedprox'})
  True
  """
  hints = typing.get_type_hints(Config, include_extras=True)
  wrapped = textwrap.TextWrapper(80, '  ', ' ' * 6).fill
  indented = textwrap.TextWrapper(80, ' ' * 6, ' ' * 6).fill
  lines = ['Fields, with their values here, their types and meanings:']
  for group, meanings in sections(Config):
    lines += ['', group]
    for name, meaning in meanings:
      value = values.get(name, getattr(Config, name))
      kind = f.plain_type(hints[name]).__name__
      kind = 'options' if name in registries.MAPPINGS else kind
      lines.append(f'  --config.{name}={value!r}  {kind}')
      allowed = f.allowed(hints[name])
      if about := '; '.join(filter(None, (meaning, allowed))):
        lines.append(indented(about))
  for field, (named_by, parts) in registries.REGISTRIES.items():
    lines += ['', f'--config.{field}.OPTION=VALUE, by --config.{named_by}:']
    lines += [wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', f'--config.loss=NAME: {", ".join(losses.names())}']
  return '\n'.join(lines)


def assignments(c: Config) -> str:
  """Lists the fields of a config that are set, a line each, by group.

  >>> 'cohort = 5' in assignments(Config(cohort=5)).splitlines()
  True
  """
  lines = []
  for group, meanings in sections(Config):
    given = c.given([name for name, _ in meanings])
    lines += ['', f'# {group}'] if given else []
    lines += [f'{name} = {value!r}' for name, value in given.items()]
  return '\n'.join(lines[1:])


def sections(cls: type) -> _Sections:
  """Returns groups of fields: a title, and names with their meanings.

  They are comments of the source. The first comment after an empty line begins
  a group, and so does each class of which a config is made.
  """
  found: _Sections = []
  for group, names in run.groups(cls):
    found.append(((inspect.getdoc(group) or '').partition('\n')[0], []))
    above, is_first = [], False
    for line in map(str.strip, inspect.getsource(group).splitlines()):
      code, _, comment = line.partition('# ')
      if comment and not code:
        if is_first and found[-1][1]:
          found.append((comment, []))
        else:
          above.append(comment)
      elif (name := code.partition(':')[0]) in names:
        found[-1][1].append((name, ' '.join([*above, comment]).strip()))
        above = []
      is_first = not line
  return [section for section in found if section[1]]


@checked()
def switched(
  fields: Mapping[str, Any], given: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
  """Leaves out the options that another algorithm, sketch ... does not take.

  >>> fields = {'algorithm': 'fedavg', 'sketch': {'kind': 'srht', 'size': 9}}
  >>> switched(fields, ['algorithm'])[1]
  ['sketch']

  The fields `given` by the command line, nested ones with a dot, stay: one that
  does not fit is refused later, one that is 'none' is unset. Returns the fields
  without those, and without a sweep over them; and their names.

  Raises:
    ConfigError: there is no algorithm, sketch ... of that name, or a private
      config has public_metrics=none, which would publish all of them.
  """
  fields = {k: registries.not_none(value) for k, value in fields.items()}
  _unset(fields, given)
  holders: dict[str, Any] = {'': fields, 'sweep.': fields.get('sweep') or {}}
  left_out = []
  within = lambda a, b: f'{a}.'.startswith(f'{b}.')
  # Of a field itself, a part of it, or what it is in.
  is_given = lambda x: any(within(g, x) or within(x, g) for g in given)

  def leave_out(*path):
    for start, holder in holders.items():
      name = start + '.'.join(path)
      for parent in path[:-1]:
        holder = holder.get(parent)
      held = isinstance(holder, dict) and holder.get(path[-1]) is not None
      if held and not is_given(name):
        holder[path[-1]] = None
        left_out.append(name)

  for field, (named_by, parts) in registries.REGISTRIES.items():
    if named_by in given or (field in registries.CALLS and field in given):
      name: Any = fields
      for part in named_by.split('.'):
        name = name and name.get(part)
      if name is None:  # unset
        leave_out(field)
      else:
        own = _OF_CALLS if field in registries.CALLS else ()
        known = {*parts.options(name), *own}
        for several in [holder.get(field) for holder in holders.values()]:
          # A sweep may have whole sketches instead, which name their kinds.
          for option in {*several} - known if isinstance(several, dict) else ():
            leave_out(field, option)
  if 'algorithm' in given:
    takes = algorithms.options(fields['algorithm'])
    for name, argument in method.TAKEN_AS.items():
      if argument not in takes:
        leave_out(name)
    for name, supports in method.STEP_OPTIONS.items():
      if not supports(fields['algorithm']):
        leave_out(name)
  if {'algorithm', 'server_optimizer'} & {*given}:
    known = {*algorithms.options(fields.get('algorithm', 'fedavg'))}
    if (optimizer := fields.get('server_optimizer')) is not None:
      known |= {*server_optimizers.options_of(optimizer)}
    for name in {*method.OPTIMIZER_OPTIONS} - known:
      leave_out(name)
  return fields, sorted(left_out)


def _unset(fields: dict[str, Any], given: Collection[str]):
  """Sets to None what is given as `none`, as a text or a tuple."""
  holders = fields, fields.get('sweep') or {}
  noise = 'epsilon', 'noise_multiplier'
  is_private = any(h.get(k) is not None for h in holders for k in noise)
  for path in given:
    *parents, name = path.split('.')
    holder = functools.reduce(lambda x, k: x.get(k) or {}, parents, fields)
    if f'{holder.get(name)}' in ('none', "('none',)"):
      holder[name] = None
    if name == 'public_metrics' and holder.get(name) is None and is_private:
      raise ValueError(
        f"{path}=none: the value 'none' is now called 'hidden'. Set hidden, or "
        'all to publish statistics without noise.'
      )
