"""What compressed exchanges have sent: a line for people, one for programs."""

import json
import pathlib
from typing import Any

from fl_sketch.utils import files, progress


class Traffic:
  """Counts the bytes of exchanges, uncompressed and sent.

  `report` is a file to which each exchange adds an object of JSON, with bytes
  and the noise of the compressor, ||error|| / ||update||, of either way.
  """

  def __init__(self, report: pathlib.Path | str | None = None):
    self._report = None if report is None else pathlib.Path(report)
    self._number, self._ways = 0, {}

  def add(self, way: str, whole: int, sent: int, noise: float):
    """Count a message that would have had `whole` bytes."""
    self._ways.setdefault(way, []).append((whole, sent, noise))

  def close(self):
    """Tell of the messages since the last call, if there are any."""
    if not self._ways:
      return
    row: dict[str, Any] = {'exchange': self._number}
    said = []
    for way, messages in self._ways.items():
      whole, sent, noise = map(sum, zip(*messages, strict=True))
      row[way] = {
        'uncompressed': whole, 'sent': sent, 'noise': noise / len(messages),
      }  # fmt: skip
      said.append(
        f'{way} {sent / 1e6:.3g} MB for {whole / 1e6:.3g} MB '
        f'({whole / max(sent, 1):.3g} times fewer), noise '
        f'{noise / len(messages):.2f}'
      )
    progress.note(f'exchange {self._number}: {"; ".join(said)}')
    if self._report is not None:
      with files.save_errors(self._report), self._report.open('a') as file:
        file.write(f'{json.dumps(row)}\n')
    self._number, self._ways = self._number + 1, {}
