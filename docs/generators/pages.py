"""Files and markup that the generators share."""

from collections.abc import Iterable, Sequence
import pathlib


def save(path: pathlib.Path, text: str):
  """Writes a page, and its folder where it is not there."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def title(text: str, underline: str = '=') -> str:
  """A heading in reStructuredText."""
  return f'{text}\n{underline * len(text)}\n'


def toctree(names: Iterable[str], *options: str) -> str:
  """A table of contents in reStructuredText, with options such as hidden."""
  lines = [f':{option}:' for option in options]
  return '\n   '.join(['.. toctree::', *lines, '', *names]) + '\n'


def table(
  head: Sequence[str], rows: Iterable[Sequence[str]], widths: str = 'auto'
) -> str:
  """A table in reStructuredText, whose cells may hold any inline markup."""
  lines = ['.. list-table::', '   :header-rows: 1', f'   :widths: {widths}', '']
  for row in (head, *rows):
    for i, cell in enumerate(row):
      cell = ' '.join(cell.split())
      lines.append(f'   {"  " if i else "* "}- {cell}'.rstrip())
  return '\n'.join([*lines, ''])


def object_link(text: str, function) -> str:
  """A link to a function or class in the API."""
  return f':py:obj:`{text} <{function.__module__}.{function.__qualname__}>`'
