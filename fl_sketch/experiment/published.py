"""What the files of a private run say of its clients, and its caveats.

The statement of a run and the table of docs/guides/privacy.md are made from it.
A test compares runs with it, file by file and column by column.
"""

from collections.abc import Sequence
import fnmatch
import re
from typing import Any, NamedTuple

from fl_sketch.data import availability, partitions
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.accounting.correlation import Correlation
from fl_sketch.privacy.mechanisms import generators

# What an item says of clients: nothing but what follows from the broadcasts; a
# statistic with noise that is accounted for, or without; what its rows say.
NOTHING, NOISED, EXACT = 'nothing', 'with noise', 'without noise'
ABSENT, KEEP, ROWS = 'left out', 'do not publish', 'as its columns'
# Conditions that a config decides; others are as they are written.
HELD = 'with client_holdout or personal_steps'
THEIRS = 'if training clients hold the test set'
CHOSEN = 'with keep_best, if training clients hold the test set'
STATE = 'if clients keep state'
SEED, SECRET = 'with noise_seed', 'without noise_seed'


class Item(NamedTuple):
  """Columns of rows, or files, and what they say of clients."""

  names: str  # patterns
  about: str
  every: str  # what it says where public_metrics is 'all',
  private: str  # 'private',
  hidden: str  # 'hidden'
  when: str = 'always'

  def says(self, c: Any) -> str:
    """What it says of clients in a run of a config."""
    shown = self.private if c.public_metrics == 'private' else self.hidden
    return self.every if c.shows_all else shown


_OF_ALL, _NO = (EXACT, ABSENT, ABSENT), (NOTHING, NOTHING, NOTHING)
_COUNTED, _KEPT = (EXACT, NOTHING, NOTHING), (EXACT, KEEP, KEEP)
_ROWS = ROWS, ROWS, ROWS
# The first item of a name counts.
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
  Item('metrics.jsonl, summary.json, printed lines', 'rows', *_ROWS),
  Item('loss.png, accuracy_vs_*.png', 'rows', *_ROWS),
  Item('tensorboard/*, wandb/*', 'rows', *_ROWS, 'with --log_to'),
  Item('points.jsonl, sweep.*, table.*, lines.*', 'rows', *_ROWS, 'of a sweep'),
  Item('clients.png', 'samples that clients hold out', *_OF_ALL, HELD),
  Item('labels.png', 'labels of each client', *_OF_ALL, 'with classes'),
  Item('checkpoints/client_rows/*', 'what clients keep', *_KEPT, STATE),
  Item('checkpoints/*, unreadable_*', 'who took part; the model', *_COUNTED),
  Item('best/*', 'chosen by samples that clients hold out', *_OF_ALL, CHOSEN),
  Item('best/*', 'model', *_NO, 'with keep_best'),
  Item('params/*', 'model of the best point', *_ROWS, 'of a sweep'),
  Item('init/*', 'model of another run', *_NO, 'with init_from'),
  Item('problem.json', 'plain digests of data', EXACT, EXACT, EXACT, SEED),
  Item('problem.json', 'digests of data by the secret', *_NO, SECRET),
  Item('secret/*', 'noise and sampling', KEEP, KEEP, KEEP, SECRET),
  Item('config.json, lock', 'config, process', *_NO),
  Item('privacy.json, epsilon.png, trade_off.png', 'account', *_NO,
    'of fl-sketch account'),
  Item('audit.png, one_run.png', 'canaries', *_NO, 'of fl-sketch account'),
)  # fmt: skip
_PUBLISHED = 'What is published are broadcasts, and all that follows from them.'
_SELECTION = 'Choosing hyperparameters on the same data is not accounted for.'
_HONEST = (
  'Clients are honest, add their share of the noise, and no more than cohort - '
  'min_honest of them drop out or collude with the server.'
)
_KNOWN = (
  'Which clients take part is not hidden: each of them is supposed to do so in '
  'every round.'
)
_LATE = 'Whether a client is silent or late is supposed not to depend on data.'
_PRETRAINED = (
  'Training starts from the parameters of a file; what they were fitted to is '
  'not protected.'
)
_BY_LABEL = (
  'Which samples a client holds was drawn from the labels of all samples '
  '(partition={!r}): that other data of one client would change what others '
  'hold is left out.'
)
_NOT_ABSENT = (
  'Zero-out is of the contribution: without any data a client of this run '
  'would still send something, by its control variate, by what it keeps from '
  'earlier rounds or by weight decay. That a client is the one without data is '
  'not covered.'
)
_ORDER = (
  'The order in which clients take part is public, and supposed not to depend '
  'on any data or on who else is there.',
)
_OF_TRUST = {
  'central': (), 'secure_aggregation': (_HONEST, _KNOWN), 'local': (_KNOWN,),
}  # fmt: skip


def says(c: Any, items: Sequence[Item], name: str, **given: Any) -> str:
  """What a column, or a file by its path in the folder of a run, says.

  >>> from fl_sketch.experiment.config import Config
  >>> says(Config(), COLUMNS, 'train_loss')
  'without noise'

  `given` are `keeps_state` and `test_of_clients`, as of `sentences`. Raises
  KeyError if no item has this name.
  """
  name = re.sub(r'^points/\d+/', '', name)  # which is the folder of a run
  for item in _existing(c, items, **given):
    if any(fnmatch.fnmatchcase(name, x) for x in item.names.split(', ')):
      return item.says(c)
  raise KeyError(f'{name} is in no item of the table; add one.')


def is_left_out(c: Any, test_of_clients: bool, column: str) -> bool:
  """Whether rows lack a column; test_loss stands for all test metrics."""
  return says(c, COLUMNS, column, test_of_clients=test_of_clients) == ABSENT


def sentences(
  c: Any, *, keeps_state: bool = False, test_of_clients: bool | None = None
) -> str:
  """What a private run publishes, and what its user should not.

  `keeps_state` says whether clients keep state, `test_of_clients` whether those
  that train hold the test set, None if that is not known.
  """
  theirs = next(item for item in COLUMNS if item.when == THEIRS).says(c)
  test = {
    None: f'If training clients hold the test set, test metrics are {theirs}.',
    True: f'Training clients hold the test set: test metrics are {theirs}.',
    False: 'No training client holds the test set.',
  }[test_of_clients]
  items = _existing(c, (*COLUMNS, *FILES), keeps_state, test_of_clients)
  labels = lambda some, what: [
    f'{item.names} ({item.about})'
    for item in items
    if item in some and item.says(c) == what
  ]
  shown = (
    'No row or figure has a statistic of clients without noise: bytes are of '
    'cohorts drawn anew from the public seed.'
  )
  if columns := labels(COLUMNS, EXACT):
    files = ', '.join(x.partition(' (')[0] for x in labels(FILES, ROWS))
    shown = f'Without noise, in rows ({files}), are {", ".join(columns)}.'
  if files := labels(FILES, EXACT):
    shown += f' Without noise are also {", ".join(files)}.'
  secret = ', '.join(labels(items, KEEP))
  return f'{test} {shown} Not to be published: {secret}.'


def _existing(c, items, keeps_state=False, test_of_clients=None) -> list[Item]:
  """Items whose conditions hold, or are not known of a config."""
  held = {
    HELD: c.client_holdout > 0 or c.personal_steps is not None,
    THEIRS: bool(test_of_clients),
    CHOSEN: bool(test_of_clients) and c.keep_best is not None,
    STATE: keeps_state,
    SEED: c.noise_seed is not None,
    SECRET: c.noise_seed is None,
  }
  return [item for item in items if held.get(item.when, True)]


def caveats(
  c: Any,
  mechanism: types.GaussianMechanism,
  trust: types.Trust,
  over_rounds: Correlation | None,
  *,
  metrics: str,
  sends_without_data: bool = False,
  **published_of: Any,
) -> tuple[str, ...]:
  """The caveats of a private config, in sentences.

  `metrics` says what private metrics cost, '' if there are none;
  `sends_without_data` whether a client whose gradients are 0 may send something
  else than 0; others are of `sentences`, `over_rounds` of the noise.
  """
  zero_out = mechanism.adjacency is types.Adjacency.ZERO_OUT
  not_absent = zero_out and mechanism.unit == 'client' and sends_without_data
  statistics = metrics, sentences(c, **published_of)
  conditions = {
    _LATE: availability.in_force(c),
    _PRETRAINED: c.pretrained is not None,
    _NOT_ABSENT: not_absent,
    _BY_LABEL.format(c.partition): c.partition in partitions.BY_LABEL,
  }
  return (
    *_of_order(c, over_rounds),
    *_OF_TRUST[trust],
    *(text for text, holds in conditions.items() if holds),
    ' '.join(filter(None, (_PUBLISHED, *statistics))),
    _SELECTION,
    *[generators.SENTENCE] * (c.noise_seed is None),
  )


def _of_order(c, over_rounds) -> tuple[str, ...]:
  """Says when clients take part, and what a step of the account is."""
  if over_rounds is None:
    return ()
  apart, length = over_rounds.separation, min(over_rounds.rounds, c.rounds)
  often = 'every round' if apart == 1 else f'one of every {apart} rounds'
  text = f'A client takes part in {often}'
  if c.noise != 'banded':
    return (f'{text}: a step is such a round.', *_ORDER)
  return (
    f'{text}. Noise is correlated over {over_rounds.bands} rounds: a step is '
    f'an epoch of {length} rounds, in which a client moves what is released by '
    f'{over_rounds.sensitivity(length):.4g} times its bound at most.',
    *_ORDER,
  )
