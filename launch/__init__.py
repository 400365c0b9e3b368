"""Command-line programs; absl flags live only here.

`fl-sketch NAME` runs one where the package is installed, `python -m launch
NAME` in a checkout.
"""

import argparse
import ast
from collections.abc import Iterable
import importlib
import itertools
import logging as standard_logging
import os
import pathlib
import re
import sys
import traceback
from typing import Any

from absl import app, flags, logging
from fl_sketch.utils import checks, fields, plugins, progress

# `python -m launch.train` would import a program, and start nothing.
_started = dict(itertools.pairwise(sys.orig_argv)).get('-m', '')
if sys.argv[0] == '-m' and _started.startswith(f'{__name__}.'):
  _name = _started.removeprefix(f'{__name__}.')
  sys.exit(f'Use fl-sketch {_name}, or python -m {__name__} {_name}.')

flags.disclaim_key_flags()  # `define_folders` defines them for the program
QUIET = False, 'Print warnings, errors and the last line only.'
SLIPS = (
  AttributeError, ImportError, KeyError, NameError, SyntaxError, TypeError,
  ValueError,
)  # fmt: skip
_HELP = {'--help', '-h', '--helpfull'}


def parse_flags(argv):
  """Parse the flags; end with one line if one of them cannot be set.

  The first argument may be the value of --config. --help ends with status 0.
  """
  own = [*itertools.takewhile(lambda arg: arg != '--', argv)]
  if _HELP & {*own}:
    app.usage('--helpfull' not in own, writeto_stdout=True, exitcode=0)
  if 'config' in flags.FLAGS and argv[1:] and not argv[1].startswith('-'):
    argv = [argv[0], f'--config={argv[1]}', *argv[2:]]
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  parser.add_argument('--plugins', action='append', default=[])
  values = parser.parse_known_args(argv)[0].plugins
  if values and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  # Before the config, which may name their parts.
  for plugin in filter(None, ','.join(values).split(',')):
    try:
      plugins.load(plugin)
    except SLIPS as e:
      sys.exit(f'Cannot load a plug-in: {slip(e, plugin)}')
  try:
    return flags.FLAGS(argv)
  except flags.UnrecognizedFlagError as e:
    has_config = 'config' in flags.FLAGS
    config = (flags.FLAGS['config'].value if has_config else None) or ()
    hint = f' Did you mean --config.{e.flagname}?'
    text = f'{e}.{hint if e.flagname in config else ""}'
  except flags.Error as e:
    text = re.sub(r'^flag (--\w+=None: )?', '', f'{e}')
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    said = re.sub(r"\\n|[\\']", ' ', f'{e}')  # a KeyError quotes its message
    text = f'Cannot set a config field: {said}'
  sys.exit(' '.join(text.split()))


def slip(error: Exception, path: str) -> str:
  """Return what is wrong in a file of the user's, with its place."""
  text = ' '.join(f'{error}'.split())
  if isinstance(error, ValueError) and checks.is_refusal(error):
    return text
  frames = traceback.extract_tb(error.__traceback__)
  lines = [x.lineno for x in frames if x.filename.endswith(path)]
  place = f'{path}, line {lines[-1]}' if lines else path
  return f'{place}: {type(error).__name__}: {text}'


def define_folders(workdir: str | None = None, unset: str = 'none') -> Any:
  """Define --workdir, whose default is `unset`, and flags of all programs."""
  text = f'Folder of the results (default: {workdir or unset}).'
  return define(
    workdir=(workdir or str, text),
    data_dir=(str, 'Folder of the files of tensorflow-datasets.'),
    compilation_cache=(True, 'Keep compiled programs in the cache folder.'),
  )


def define(**definitions: tuple[Any, ...]) -> Any:
  """Define flags by a default, or the type of one that is unset, and help.

  A third element is the least number, or the choices of a text; without it
  integers are >= 1, or >= 0 if that is the default. Returns their values.
  """
  kinds = {bool: 'boolean', int: 'integer', float: 'float', list: 'list'}
  for name, (value, text, *more) in definitions.items():
    kind = value if isinstance(value, type) else type(value)
    default: Any = None if kind is value else value
    if kind is str and more:
      flags.DEFINE_enum(name, default, more[0], text)
      continue
    if kind is int:
      more = more or [1 if default is None else min(default, 1)]
    of_kind = getattr(flags, f'DEFINE_{kinds.get(kind, "string")}')
    of_kind(name, default, text, *more)
  return flags.FLAGS


def neighbour(name: str) -> Any:
  """Import a module of papers/ or benchmarks/.

  These stand beside this package in a checkout, in fl_sketch when installed.
  """
  return importlib.import_module(f'{__package__}'.removesuffix('launch') + name)


def begin(argv):
  """Refuse unknown arguments; hide the libraries' log; keep programs."""
  if len(argv) > 1:
    sys.exit(f'Unknown argument {argv[1]!r}; remove it.')
  check_folders()
  progress.quiet = 'quiet' in flags.FLAGS and flags.FLAGS.quiet
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
    handler, plain = logging.get_absl_handler(), '%(message)s'
    handler.setFormatter(standard_logging.Formatter(plain))
  if 'compilation_cache' in flags.FLAGS and flags.FLAGS.compilation_cache:
    from fl_sketch.runs import devices

    devices.cache_programs()


def check_folders():
  """Refuse a folder of a flag that cannot be made."""
  for name in {'workdir', 'to', 'state'} & {*flags.FLAGS}:
    path = pathlib.Path(flags.FLAGS[name].value or '').absolute()
    there = next(x for x in (path, *path.parents) if os.path.exists(x))
    if not there.is_dir() or (there != path and not os.access(there, os.W_OK)):
      sys.exit(f'{path} cannot be made in {there}; set another --{name}.')


def summaries(folder: pathlib.Path, function: str) -> dict[str, str]:
  """Return the first line of each module that defines a function."""
  lines = {}
  for path in sorted(folder.glob('[!_]*.py')):
    module = ast.parse(path.read_text(encoding='utf-8'))
    defined = {x.name for x in module.body if isinstance(x, ast.FunctionDef)}
    if function in defined:
      lines[path.stem] = (ast.get_docstring(module) or '').partition('\n')[0]
  return lines


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
  """Return the message for an unknown name, with the nearest names."""
  names = tuple(names)
  listed = fields.listed(name, names, most=180).strip('()').replace("'", '')
  hint = fields.did_you_mean(name, names)
  return f'No {kind} {fields.shown(name)}.{hint} There are: {listed}.'
