"""Tables of last values: as Markdown, and in a CSV file with all digits."""

from collections.abc import Iterable, Sequence
import csv
import io
import math
import pathlib
from typing import Any

from fl_sketch.utils import files, markdown

BYTES = {'MB up': 'total_uplink_bytes', 'MB down': 'total_downlink_bytes'}


def shown(value: Any) -> str:
  """Formats a value for tables and labels; NaN as ''.

  >>> shown(0.123456), shown(12345.6), shown(float('nan')), shown('adam')
  ('0.1235', '12,346', '', 'adam')
  """
  if not isinstance(value, float):
    return str(value)
  large = 1e4 <= abs(value) < 1e9
  return '' if math.isnan(value) else f'{value:{",.0f" if large else ".4g"}}'


def write(
  path: pathlib.Path, head: Sequence[str], rows: Iterable[Sequence[Any]]
) -> str:
  """Writes a CSV file; returns the table in Markdown, numbers shortened."""
  rows, out = list(rows), io.StringIO()
  csv.writer(out, lineterminator='\n').writerows([head, *rows])
  files.replace(path, out.getvalue())
  return markdown.table(head, (map(shown, row) for row in rows), left=1)
