"""Lists the configs that come with the package.

  fl-sketch configs

Other programs take one of these names, or the path of a Python file that has a
function `get_config`, with its argument after a colon: quickstart:quick.
"""

import importlib.util
import pathlib
import re
import sys
import types

from absl import app, flags
from ml_collections import config_flags

from . import begin, parse_flags, summaries, unknown

FOLDER = pathlib.Path(__file__).parents[1] / 'configs'
# `configs` in a checkout, `fl_sketch.configs` where the package is installed.
PACKAGE = f'{__package__}'.removesuffix('launch') + 'configs'
flags.disclaim_key_flags()  # `define_flag` defines it for the program


class _Parser(flags.ArgumentParser):
  """Parses NAME[:ARGUMENT]; that of ml_collections reads only paths."""

  def parse(self, argument):
    name, *variant = argument.split(':', 1)
    try:
      config = load(name).get_config(*variant)
      config.lock()
    except (AttributeError, KeyError, TypeError) as e:  # a defect of the file
      raise RuntimeError(f'Cannot load the config {argument!r}.') from e
    return config


def define_flag() -> flags.FlagHolder:
  """Defines --config, which is required."""
  holder = config_flags.DEFINE_config_file(
    'config', help_string='Name of a config, or the path of its file.'
  )
  flags.FLAGS['config'].parser = _Parser()
  flags.register_validator(
    'config',
    lambda config: config is not None,
    'Name a config, such as quickstart: `fl-sketch configs` lists them.',
  )
  return holder


def names() -> list[str]:
  """The names of the configs that come with the package."""
  return list(summaries(FOLDER, 'get_config'))


def load(name: str) -> types.ModuleType:
  """Loads the module of a config.

  Like those of the package, a file of the user's may say `from . import new`.

  Args:
    name: of `names`, or the path of a Python file.

  Raises:
    ValueError: there is none; the message has all names and the nearest.
  """
  path = pathlib.Path(name)
  if name in names():
    path = FOLDER / f'{name}.py'
  elif not path.is_file():
    raise ValueError(unknown('config', name, names(), path.stem))
  if path.resolve().parent == FOLDER.resolve():
    return importlib.import_module(f'{PACKAGE}.{path.stem}')
  spec = importlib.util.spec_from_file_location(f'{PACKAGE}._own', path)
  if spec is None or spec.loader is None:
    raise ValueError(f'Expected config={name!r} to be a Python file.')
  module = importlib.util.module_from_spec(spec)
  sys.modules[module.__name__] = module  # dataclasses look for it there
  spec.loader.exec_module(module)
  return module


def workdir(prefix: str = '') -> str:
  """The workdir of a program if none is given: runs/ and the config's name."""
  given = config_flags.get_config_filename(flags.FLAGS['config'])
  name, _, argument = given.partition(':')
  words = re.findall(r'\w+', f'{pathlib.Path(name).stem}:{argument}')
  return f'runs/{prefix}{"-".join(words)}'


def main(argv):
  """Prints every name and what the config is."""
  begin(argv)
  for name, summary in summaries(FOLDER, 'get_config').items():
    print(f'{name:26} {summary}')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
