"""Show the progress of a run: loss, accuracy, bytes, speed, time left."""

import functools
import sys
from typing import Any

import tqdm

quiet = False  # whether notes and bars are hidden, as by --quiet


def note(text: str):
  """Write one line to stderr, above a progress bar if there is one."""
  if not quiet:
    tqdm.tqdm.write(text, file=sys.stderr)


note_once = functools.cache(note)


class Progress:
  """A bar on stderr; an earlier start has done `done` of the `total` rounds."""

  def __init__(self, total: int, done: int, shown: bool):
    look = {'unit': 'round', 'mininterval': 0.5, 'disable': quiet or not shown}
    self._bar = tqdm.tqdm(total=total, initial=done, **look)
    self._fields: dict[str, str] = {}
    self.close = self._bar.close  # leaves its last line on the screen

  def advance(self, row: dict[str, Any]):
    """Advance by one round; fields that the row lacks keep their values."""
    for label, name in ('loss', 'train_loss'), ('accuracy', 'test_accuracy'):
      if name in row:  # a private run may leave out its loss
        self._fields[label] = f'{row[name]:.4f}'
    moved = row['total_uplink_bytes'] + row['total_downlink_bytes']
    self._fields['MB'] = f'{moved / 1e6:.1f}'
    self._bar.set_postfix(self._fields, refresh=False)
    self._bar.update()
