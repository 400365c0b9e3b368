"""Lists the errors of which a program prints only the message.

Their messages say what to change; every other error keeps its traceback.
"""

from typing import Any


def __getattr__(name: str) -> Any:
  """Imports what raises `USER_ERRORS` when one of them is looked up."""
  if name != 'USER_ERRORS':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from fl_sketch import training
  from fl_sketch.data import sources
  from fl_sketch.experiment import config
  from fl_sketch.privacy.accounting import types
  from fl_sketch.training import (
    checkpoints,
    memory,
    noise_secret,
    placement,
    workdir,
  )
  from fl_sketch.utils import extras, files

  return (
    config.ConfigError,
    sources.DataError,
    types.CalibrationError,
    types.UnsupportedAccountingError,
    checkpoints.CheckpointError,
    memory.TooLargeError,
    noise_secret.SecretError,
    placement.PlacementError,
    training.DivergedError,
    workdir.WorkdirError,
    extras.MissingExtraError,
    files.SaveError,
  )
