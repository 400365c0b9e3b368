"""List the configs that come with the package.

  fl-sketch configs

Other programs take one of these names, or the path of a Python file that has a
function `get_config`, with its argument after a colon: quickstart:quick.
"""

import importlib
import pathlib
import re
import sys
import types
from typing import Any

from absl import flags
from fl_sketch.utils import fields as fields_lib, plugins, registry
from ml_collections import config_dict, config_flags

from . import SLIPS, begin, slip, summaries, unknown

_TOP = pathlib.Path(__file__).parents[1]
FOLDER = _TOP / 'configs'
# `configs` in a checkout, `fl_sketch.configs` where the package is installed.
PACKAGE = f'{__package__}'.removesuffix('launch') + 'configs'
flags.disclaim_key_flags()  # `define_flag` defines it for the program


def _or_none(kind: str, parser: type[flags.ArgumentParser]) -> Any:
  """Return a parser of fields of a kind, which `none` unsets."""

  class Parser(parser):
    def parse(self, argument):
      if str(argument).lower() == 'none':
        return None
      try:
        return super().parse(argument)
      except (TypeError, ValueError):
        raise ValueError(f'must be of type {kind}.') from None

  return Parser()


class _CallParser(flags.ArgumentParser):
  """A parser of NAME(OPTION=VALUE, ...), or none, as a nested field."""

  def parse(self, argument):
    if isinstance(argument, config_dict.ConfigDict):  # what there was
      return argument
    unset = argument.lower() == 'none'
    options = {'kind': None} if unset else registry.parse_call(argument)
    return config_dict.ConfigDict(options)


_PARSERS = {
  bool: flags.BooleanParser, float: flags.FloatParser,
  int: flags.IntegerParser, str: flags.ArgumentParser,
}  # fmt: skip
_register = config_flags.register_flag_parser_for_type
for _type, _parser in _PARSERS.items():
  _register(_type, _or_none(_type.__name__, _parser))
_register(config_dict.ConfigDict, _CallParser())


class _Parser(flags.ArgumentParser):
  """A parser of NAME[:ARGUMENT]; that of ml_collections reads only paths."""

  def parse(self, argument):
    name, *variant = argument.split(':', 1)
    command = 'train' if 'plugins' in flags.FLAGS else 'attack'
    try:
      make = getattr(load(name, command), 'get_config', None)
      if make is None:
        raise ValueError(f"{name} has no function get_config(variant='').")
      config = make(*variant)
      known = {*config} if isinstance(config, config_dict.ConfigDict) else {}
      of_attack = 'objective' in known
      if not (of_attack or 'plugins' in known):
        raise ValueError(f'get_config of {name} returns no `new()`.')
      config.lock()
      if of_attack != (command == 'attack'):
        other = 'attack' if of_attack else 'train'
        raise ValueError(f'{name} is a config of `fl-sketch {other}`.')
      _check_overrides(config)
    except SLIPS as e:
      sys.exit(f'Cannot load the config: {slip(e, name)}')
    return config


def _check_overrides(config: Any):
  names, holders = [], [('', config)]
  for prefix, holder in holders:  # those of nested fields are appended
    names += [prefix + name for name in holder]
    holders += [
      (f'{prefix}{name}.', value)
      for name, value in holder.items()
      if isinstance(value, config_dict.ConfigDict)
    ]
  arguments = ' '.join(['', *sys.argv])
  for path in re.findall(r' --?(?:no)?config\.([\w.]+)', arguments):
    if path not in names:
      option = path.rpartition('.')[2]
      same = [x for x in names if x.rpartition('.')[2] == option]
      near = min(same, key=len, default=path)
      hint = fields_lib.did_you_mean(near, same or names)
      if path.startswith('server_optimizer.'):
        hint = " Set server_optimizer='NAME(OPTION=VALUE)'."
      sys.exit(f'Unknown field --config.{path}.{hint}')


def define_flag(*, parts: bool = True) -> flags.FlagHolder:
  """Define --config, which is required.

  If it names registered parts, also --config_help and --plugins, for `fields`.
  """
  holder = config_flags.DEFINE_config_file(
    'config', help_string='Name of a config, or path of its file.'
  )
  flags.FLAGS['config'].parser = _Parser()
  if parts:
    of_help = 'Print the fields and options of the config, then exit.'
    flags.DEFINE_boolean('config_help', False, of_help)
    of_plugins = 'Modules or files that register your own parts.'
    flags.DEFINE_list('plugins', [], of_plugins)
  is_named = lambda config: config is not None
  text = 'Name a config, such as quickstart: `fl-sketch configs` lists them.'
  flags.register_validator('config', is_named, text)
  return holder


def names(command: str = '') -> list[str]:
  """Return the names of the package's configs, or those of `attack` or not."""
  of_attack = command == 'attack'
  mine = lambda name: not command or name.endswith('_attack') == of_attack
  return sorted(filter(mine, paths()))


def paths() -> dict[str, pathlib.Path]:
  """Return the files of these configs by name, those of papers included."""
  folders = FOLDER, *_TOP.glob('papers/*/configs')
  return {x.stem: x for folder in folders for x in folder.glob('[!_]*.py')}


def load(name: str, command: str = '') -> types.ModuleType:
  """Load the module of a config: one of `names`, or the path of a Python file.

  Like those of the package, a file of the user's may say `from . import new`.
  Raises ValueError, with the nearest `names` of the command, if there is none.
  """
  path = paths().get(name, pathlib.Path(name))
  if not path.is_file() or path.suffix != '.py':
    known = names(command)
    if len(path.parts) == 1 and not path.suffix:
      raise ValueError(unknown('config', name, known))
    why = 'does not exist' if not path.is_file() else 'is no .py file'
    raise ValueError(
      f'{name} {why}.{fields_lib.did_you_mean(path.stem, known)}'
    )
  if path.resolve().parent == FOLDER.resolve():
    return importlib.import_module(f'{PACKAGE}.{path.stem}')
  return plugins.load(str(path))


def fields() -> dict[str, Any]:
  """Return the fields of --config that its parts take; print the others."""
  from fl_sketch.runs import config as config_lib  # loads JAX

  config: Any = flags.FLAGS['config']
  overrides = config_flags.get_override_values(config)
  taken, left_out = config_lib.switched(config.value.to_dict(), overrides)
  if flags.FLAGS.config_help:
    print(config_lib.help_text(taken))
    sys.exit()
  path = config_flags.get_config_filename(config).partition(':')[0]
  if left_out:
    print('Removed, as the config no longer takes it:', ', '.join(left_out))
  named = [*(taken['plugins'] or ()), *flags.FLAGS.plugins]
  if _whole(path) in registry.FILES:
    named.append(path)
  # A run can be loaded from any working folder.
  return taken | {'plugins': tuple(dict.fromkeys(map(_whole, named)))}


def _whole(plugin: str) -> str:
  """Return the absolute path of a file; a module as it is."""
  is_file = f'{plugin}'.endswith('.py')
  return str(pathlib.Path(plugin).resolve()) if is_file else plugin


def workdir(prefix: str = '') -> str:
  """Return the default workdir of a program: runs/ and the config's name."""
  filename = config_flags.get_config_filename(flags.FLAGS['config'])
  name, _, argument = filename.partition(':')
  words = re.findall(r'\w+', f'{pathlib.Path(name).stem}:{argument}')
  return f'runs/{prefix}{"-".join(words)}'


def main(argv):
  """Print every name and what the config is."""
  begin(argv)
  lines = {}
  for folder in {path.parent for path in paths().values()}:
    lines |= summaries(folder, 'get_config')
  for name in sorted(lines):
    print(f'{name:26} {lines[name]}')
