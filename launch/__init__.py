"""Command-line programs; absl flags live only here."""

import sys

from absl import app


def parse_flags(argv):
  """Parses the flags; a config field that is not there ends with its message.

  For `app.run(main, flags_parser=parse_flags)`: config flags raise errors of
  Python where others raise errors of absl.
  """
  try:
    return app.parse_flags_with_usage(argv)
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    sys.exit(f'Cannot set a config field: {e}')
