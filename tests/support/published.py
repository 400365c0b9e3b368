"""What the rows and the files of a private run say of its clients.

docs/guides/privacy.md shows this table; tests/runs/training compares it with
runs that differ in the data of one client.
"""

import fnmatch
import re
from typing import NamedTuple

from fl_sketch.runs.config import Config

NOTHING, NOISED, EXACT = 'nothing', 'with noise', 'without noise'
ABSENT, KEEP, ROWS = 'left out', 'do not publish', 'as its columns'
_OF_ALL, _NO = (EXACT, ABSENT, ABSENT), (NOTHING, NOTHING, NOTHING)
_COUNTED, _KEPT = (EXACT, NOTHING, NOTHING), (EXACT, KEEP, KEEP)
_ROWS = ROWS, ROWS, ROWS
# Conditions, which `_present` looks up.
HELD = 'with client_holdout or personal_steps'
THEIRS = 'if training clients hold the test set'
CHOSEN = 'with keep_best, if training clients hold the test set'
STATE = 'if clients keep state'
SEED, SECRET = 'with noise_seed', 'without noise_seed'


class Item(NamedTuple):
  """Columns of rows, or files, and what they say of clients."""

  names: str  # patterns
  about: str
  every: str  # what it says of clients if public_metrics='all'
  private: str  # if 'private'
  hidden: str  # if 'hidden'
  when: str = 'always'

  def says(self, config: Config) -> str:
    """Return what it says of clients in a run of a config."""
    if config.shows_all:
      return self.every
    return self.private if config.public_metrics == 'private' else self.hidden


# Of the items that match a name, the first counts.
COLUMNS = (
  Item('round, epsilon, finite', 'config and model', *_NO),
  Item('train_loss', 'mean loss', EXACT, NOISED, ABSENT),
  Item('participants', 'number', EXACT, NOISED, ABSENT),
  Item('rejected_clients, late_clients, silent_clients', 'numbers', *_OF_ALL),
  Item('*_bytes', 'traffic', *_COUNTED),
  Item('client_*, personal_*', 'samples that clients hold out', *_OF_ALL, HELD),
  Item('*test_*', 'samples that clients hold out', *_OF_ALL, THEIRS),
  Item('*test_*', 'samples of nobody who trains', *_NO, 'otherwise'),
  Item('seconds', 'may depend on who took part', *_KEPT),
  Item('*', 'other metrics of local work', *_OF_ALL),
)
FILES = (
  Item('metrics.jsonl, summary.json, printed lines, loss.png, '
    'accuracy_vs_*.png, tensorboard/*, wandb/*', 'rows', *_ROWS),
  Item('points.jsonl, sweep.*, table.*, params/*', 'rows of points',
    *_ROWS, 'of a sweep'),
  Item('clients.png', 'samples that clients hold out', *_OF_ALL, HELD),
  Item('labels.png', 'labels of each client', *_OF_ALL, 'with classes'),
  Item('checkpoints/client_rows/*', 'what clients keep', *_KEPT, STATE),
  Item('checkpoints/*', 'who took part; the model', *_COUNTED),
  Item('best/*', 'chosen by samples that clients hold out', *_OF_ALL, CHOSEN),
  Item('best/*, init/*', 'model', *_NO, 'with keep_best, init_from'),
  Item('problem.json', 'plain digests of data', EXACT, EXACT, EXACT, SEED),
  Item('problem.json', 'digests of data by the secret', *_NO, SECRET),
  Item('secret/*', 'noise and sampling', KEEP, KEEP, KEEP, SECRET),
  Item('config.json, lock', 'config, process', *_NO),
  Item('privacy.json, epsilon.png, trade_off.png', 'account', *_NO,
    'of fl-sketch account'),
)  # fmt: skip


def says(config: Config, items, name: str, **known) -> str:
  """Return what a column, or a file in the folder of a run, says of clients.

  `known` are arguments of `_present`. Raises KeyError if no item has this name.
  """
  name = re.sub(r'^points/\d+/', '', name)  # a point's folder is that of a run
  for item in _present(config, items, **known):
    if any(fnmatch.fnmatchcase(name, x) for x in item.names.split(', ')):
      return item.says(config)
  raise KeyError(f'{name} is in no item of the table; add one.')


def _present(config: Config, items, keeps_state=False, test_of_clients=None):
  """Return the items whose conditions hold, or follow from no config."""
  holds = {
    HELD: config.client_holdout > 0 or config.personal_steps is not None,
    THEIRS: bool(test_of_clients),
    CHOSEN: bool(test_of_clients) and config.keep_best is not None,
    STATE: keeps_state,
    SEED: config.noise_seed is not None,
    SECRET: config.noise_seed is None,
  }
  return [item for item in items if holds.get(item.when, True)]
