"""Errors of which a program prints only the message, which says what to change.

Every other error keeps its traceback.
"""

from collections.abc import Iterator
import contextlib
import pkgutil

from . import refuse

_ERRORS = (
  'experiment.config:ConfigError', 'data.sources:DataError',
  'privacy.accounting.types:CalibrationError',
  'privacy.accounting.types:UnsupportedAccountingError',
  'reporting.metrics:MetricsError', 'training:DivergedError',
  'training.checkpoints:CheckpointError', 'training.memory:TooLargeError',
  'training.noise_secret:SecretError', 'training.placement:PlacementError',
  'training.workdir:WorkdirError', 'utils.extras:MissingExtraError',
  'utils.files:SaveError',
)  # fmt: skip


@contextlib.contextmanager
def refused(*also: type[Exception]) -> Iterator[None]:
  """Ends the program with the message of one of `user_errors`, or `also`."""
  try:
    yield
  except (*also, *user_errors()) as e:
    refuse(e)


def user_errors() -> tuple[type[Exception], ...]:
  """Returns these errors; imports the modules that raise them."""
  return tuple(pkgutil.resolve_name(f'fl_sketch.{name}') for name in _ERRORS)
