"""The command line `fl-sketch COMMAND [CONFIG] [--flags]`.

Every module beside this one that has a `main` is a command.
"""

import pathlib
import runpy
import sys

from absl import app
from fl_sketch.utils import __version__

from . import errors, parse_flags, summaries, unknown

FOLDER = pathlib.Path(__file__).parent
_USAGE = """\
fl-sketch COMMAND [CONFIG] [--flags]

{}

`fl-sketch COMMAND --help` describes a command; `fl-sketch --version`."""


def main() -> None:
  """Run the command that the command line names."""
  name = sys.argv[1] if sys.argv[1:] else '--help'
  if not name.startswith('-'):
    name = name.replace('-', '_')
  commands = summaries(FOLDER, 'main')
  shown = {k.replace('_', '-'): text for k, text in commands.items()}
  if name in ('--help', '-h', 'help'):
    lines = (f'  {name:11} {text}' for name, text in shown.items())
    print(_USAGE.format('\n'.join(lines)))
  elif name == '--version':
    print('fl_sketch', __version__)
  elif name not in commands:
    sys.exit(unknown('command', sys.argv[1], shown))
  else:
    del sys.argv[1]
    with errors.refused():
      # As `__main__`, of which absl's --help shows flags and docstring.
      program = runpy.run_module(f'{__package__}.{name}', run_name='__main__')
    sys.modules['__main__'].__doc__ = program['__doc__']
    app.run(errors.refused()(program['main']), flags_parser=parse_flags)


if __name__ == '__main__':
  main()
