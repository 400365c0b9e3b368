"""Packages that only some features need: the extras of pyproject.toml."""

from collections.abc import Iterator
import contextlib

from fl_sketch.utils import UserError, progress


class MissingExtraError(UserError, ImportError):
  """A package of an extra is not installed; the message says how to get it."""


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
  """Raise MissingExtraError, with the extra, in place of ModuleNotFoundError.

  >>> with needed('plots'):
  ...   import absent
  Traceback (most recent call last):
  fl_sketch.utils.extras.MissingExtraError: The package 'absent' is not ...
  """
  try:
    yield
  except ModuleNotFoundError as e:
    raise MissingExtraError(
      f'The package {e.name!r} is not installed: run '
      f"`pip install 'fl_sketch[{extra}]'`, or 'fl_sketch[all]' for every "
      'optional feature.',
      name=e.name,
    ) from e


@contextlib.contextmanager
def optional_figures() -> Iterator[None]:
  """Leave out the figures drawn inside it, and say so, without matplotlib."""
  try:
    yield
  except MissingExtraError as e:
    progress.note_once(f'Figures are not drawn. {e}')
