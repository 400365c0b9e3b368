"""Names the line of a user's file that an operation comes from."""

import pathlib
from typing import Any

import fl_sketch

_LIBRARY = str(pathlib.Path(fl_sketch.__file__).parent)
_HERE = str(pathlib.Path(__file__).parent / 'proof.py')


def where(eqn: Any, users: bool = False) -> str | None:
  """The line that made an operation, as FILE:LINE; None if it is not known.

  With `users` only that of a file outside of libraries.
  """
  own = None
  for frame in _frames(eqn):
    place = f'{pathlib.Path(frame.file_name).name}:{frame.line_num}'
    if frame.file_name.startswith(_LIBRARY):
      own = own or place
    elif 'site-packages' not in frame.file_name:
      return place
  return None if users else own


def _frames(eqn) -> list[Any]:
  """Innermost first, those of the program alone."""
  traceback = eqn.source_info.traceback
  frames = [] if traceback is None else list(traceback.frames)
  for n, frame in enumerate(frames):
    if frame.file_name == _HERE and frame.function_name == 'traced':
      return frames[:n]
  return frames
