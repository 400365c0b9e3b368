"""Show the progress of a run: loss, accuracy, speed, bytes, time left."""

import functools
import sys
from typing import Any

import tqdm


def note(text: str):
  """Write one line to stderr, above a progress bar if there is one."""
  tqdm.tqdm.write(text, file=sys.stderr)


note_once = functools.cache(note)


class Progress:
  """A bar on stderr; an earlier start has done `done` of the `total` rounds."""

  def __init__(self, total: int, done: int, cohort: int, shown: bool):
    look = {'unit': 'round', 'mininterval': 0.5, 'disable': not shown}
    self._bar = tqdm.tqdm(total=total, initial=done, **look)
    self._cohort, self._rounds = cohort, 0
    self._accuracy: float | None = None

  def advance(self, row: dict[str, Any]):
    """Advance by one round; fields that the row lacks keep their values."""
    self._rounds += 1
    self._accuracy = row.get('test_accuracy', self._accuracy)
    moved = row['total_uplink_bytes'] + row['total_downlink_bytes']
    elapsed = max(self._bar.format_dict['elapsed'], 1e-9)
    fields = {}
    if 'train_loss' in row:  # which a private run may leave out
      fields['loss'] = f'{row["train_loss"]:.4f}'
    if self._accuracy is not None:
      fields['accuracy'] = f'{self._accuracy:.4f}'
    fields['clients/s'] = f'{self._rounds * self._cohort / elapsed:.0f}'
    fields['MB'] = f'{moved / 1e6:.1f}'
    self._bar.set_postfix(fields, refresh=False)
    self._bar.update()

  def close(self):
    """Close the bar and leave its last line on the screen."""
    self._bar.close()
