"""Command-line programs; absl flags live only here."""

import os
import sys
import traceback
from typing import NoReturn

from absl import app, flags, logging
from fl_sketch.rounds import processes
import jax

STOPPED = 75  # EX_TEMPFAIL: stopped by a signal; the same command resumes


def parse_flags(argv):
  """Parses the flags; ends with a message if a config field cannot be set.

  For `app.run(main, flags_parser=parse_flags)`, which does not catch the errors
  of config flags.
  """
  try:
    return app.parse_flags_with_usage(argv)
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    sys.exit(f'Cannot set a config field: {e}')


def begin(argv):
  """Refuses unknown arguments; hides the libraries' log of every step.

  --verbosity shows it.
  """
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)


def refuse(error: Exception) -> NoReturn:
  """Ends the program with the message of an error, without its traceback."""
  logging.debug('Traceback, shown by --verbosity=1:', exc_info=True)
  message = f'{type(error).__name__}: {error}'
  if jax.distributed.is_initialized():  # sys.exit would wait for the others
    _end(message)
  sys.exit(message)


def leave(error: Exception) -> NoReturn:
  """Ends one of several processes at once, without waiting for the others."""
  message = ''.join(traceback.format_exception(error))
  if processes.is_peer_lost(error):
    message += (
      '\nAnother process is gone, so that this one cannot go on. Start all of '
      'them again: the same command resumes from the last checkpoint.'
    )
  _end(message)


def _end(message: str) -> NoReturn:
  print(message, file=sys.stderr, flush=True)
  os._exit(1)
