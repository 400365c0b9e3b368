"""Names the line of a user's file that an operation comes from."""

import pathlib
from typing import Any

_LIBRARY = str(pathlib.Path(__file__).parents[2])


def where(eqn: Any, users: bool = False) -> str | None:
  """The line that made an operation, as FILE:LINE; None if it is not known.

  With `users` only that of a file outside of libraries.
  """
  own = None
  traceback = eqn.source_info.traceback  # innermost first, of the program
  for frame in [] if traceback is None else traceback.frames:
    place = f'{pathlib.Path(frame.file_name).name}:{frame.line_num}'
    if frame.file_name.startswith(_LIBRARY):
      own = own or place
    elif 'site-packages' not in frame.file_name:
      return place
  return None if users else own
