"""A config: all fields of an experiment, checked when it is constructed."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
from typing import Any

from fl_sketch.experiment.fields import privacy, registries
from fl_sketch.utils import checks, display, fields as f, old_fields, plugins

# Fields that may differ when a run is resumed. They change no number of any
# round, but for clients_per_step, with which sums are equal up to rounding.
# `workdir.resumable` leaves out those on which something else depends.
RESUMABLE = (
  'rounds', 'clients_per_step', 'log_every', 'eval_every', 'checkpoint_every',
  'keep_checkpoints', 'plugins',
)  # fmt: skip


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


@display.shown()
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
    fields = old_fields.current(fields)
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
