"""Ends of a program: a user's error, or the loss of another process."""

from collections.abc import Iterator
import contextlib
import os
import sys
import traceback
from typing import NoReturn

from absl import logging
from fl_sketch.utils import UserError

STOPPED = 75  # EX_TEMPFAIL: stopped by a signal; the same command resumes


@contextlib.contextmanager
def refused(*also: type[Exception]) -> Iterator[None]:
  """End the program with the message of a `UserError`, or of one of `also`.

  Arrays that exceed the memory end it with one line, too.
  """
  try:
    yield
  except (UserError, *also) as e:
    refuse(e)
  except (MemoryError, RuntimeError) as e:
    if not (isinstance(e, MemoryError) or 'RESOURCE_EXHAUSTED' in f'{e}'):
      raise
    advice = 'use a smaller model, batch_size, local_steps or cohort'
    refuse(MemoryError(f'{f"{e}".partition(chr(10))[0]}; {advice}.'))


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
