"""Errors of which a program prints only the message, which says what to change.

Every other error keeps its traceback.
"""

from collections.abc import Iterator
import contextlib
import os
import pkgutil
import sys
import traceback
from typing import NoReturn

from absl import logging

STOPPED = 75  # EX_TEMPFAIL: stopped by a signal; the same command resumes
_ERRORS = (
  'runs.config:ConfigError', 'data.sources:DataError',
  'privacy.noninterference.flow:InterferenceError',
  'accounting.types:CalibrationError',
  'accounting.types:UnsupportedAccountingError',
  'runs.metrics:MetricsError', 'runs:DivergedError',
  'runs.checkpoints:CheckpointError', 'runs.memory:TooLargeError',
  'runs.noise_secret:SecretError', 'runs.program:PlacementError',
  'runs.workdir:WorkdirError', 'utils.extras:MissingExtraError',
  'utils.files:SaveError',
)  # fmt: skip


@contextlib.contextmanager
def refused(*also: type[Exception]) -> Iterator[None]:
  """End the program with the message of one of `user_errors`, or `also`."""
  try:
    yield
  except Exception as e:
    if not isinstance(e, (*also, *user_errors())):
      raise
    refuse(e)


def refuse(error: Exception) -> NoReturn:
  """End the program with the message of an error, without its traceback."""
  from fl_sketch.utils import files
  import jax

  logging.debug('Traceback, shown by --verbosity=1:', exc_info=True)
  message = f'{type(error).__name__}: {error}'
  # sys.exit would wait for the others, or for threads that cannot write.
  if jax.distributed.is_initialized() or isinstance(error, files.SaveError):
    _end(message)
  sys.exit(message)


def leave(error: Exception) -> NoReturn:
  """End one of several processes at once, without waiting for the others."""
  from fl_sketch.rounds import peers

  message = ''.join(traceback.format_exception(error))
  if peers.is_peer_lost(error):
    message += f'\n{peers.GONE}'
  _end(message)


def _end(message: str) -> NoReturn:
  print(message, file=sys.stderr, flush=True)
  os._exit(1)


def user_errors() -> tuple[type[Exception], ...]:
  """Import and return these errors."""
  return tuple(pkgutil.resolve_name(f'fl_sketch.{name}') for name in _ERRORS)
