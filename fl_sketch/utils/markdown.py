"""Format and read tables in Markdown."""

from collections.abc import Iterable, Sequence
import re


def table(
  head: Sequence[str], rows: Iterable[Iterable[str]], left: int | None = None
) -> str:
  """Format rows as a Markdown table; every line ends with a newline.

  The first `left` columns are aligned left, all of them by default.

  >>> print(table(['run', 'loss'], [['a', '0.5']], left=1), end='')
  | run | loss |
  | --- | ---: |
  | a | 0.5 |
  """
  left = len(head) if left is None else left
  rule = ['---'] * left + ['---:'] * (len(head) - left)
  return ''.join(f'| {" | ".join(line)} |\n' for line in (head, rule, *rows))


def cells(text: str) -> list[list[str]]:
  r"""Return the cells of a Markdown table: its head, then its rows.

  >>> cells(table(['run', r'a\|b'], [['a', '0.5']]))
  [['run', 'a|b'], ['a', '0.5']]
  """
  head, _, *rows = (
    [cell.strip().replace(r'\|', '|') for cell in re.split(r'(?<!\\)\|', line)]
    for line in text.strip().splitlines()
  )
  return [row[1:-1] for row in (head, *rows)]
