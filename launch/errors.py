"""Lists the errors of which a program prints only the message.

Their messages say what to change; every other error keeps its traceback.
"""

from fl_sketch import training
from fl_sketch.data import sources
from fl_sketch.experiment import config
from fl_sketch.privacy import types
from fl_sketch.training import (
  checkpoints,
  memory,
  noise_secret,
  placement,
  workdir,
)
from fl_sketch.utils import extras, files

USER_ERRORS = (
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
