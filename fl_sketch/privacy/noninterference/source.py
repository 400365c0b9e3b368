"""The line of a user's file that an operation comes from."""

import pathlib

from jax.extend import core

_LIBRARY = str(pathlib.Path(__file__).parents[2])


def where(eqn: core.JaxprEqn, users: bool = False) -> str | None:
  """Return the line that made an operation, as FILE:LINE; None: unknown.

  With `users` it returns None unless a file outside of libraries has the line.
  """
  line = None
  traceback = eqn.source_info.traceback  # innermost first, of the program
  for frame in [] if traceback is None else traceback.frames:
    place = f'{pathlib.Path(frame.file_name).name}:{frame.line_num}'
    if frame.file_name.startswith(_LIBRARY):
      line = line or place
    elif 'site-packages' not in frame.file_name:
      return place
  return None if users else line
