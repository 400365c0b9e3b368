"""Host helpers, which every other package may use and which use none."""

__version__ = '0.1.0'  # in the lowest layer, so that files can record it


class UserError(Exception):
  """Its message says what to change: a program prints no traceback."""
