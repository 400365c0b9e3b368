"""What a private run publishes of its clients; the caveats of its statement."""

from fl_sketch.accounting import types
from fl_sketch.accounting.correlation import Correlation
from fl_sketch.data import availability, partitions
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.runs.config import Config

_PUBLISHED = 'What is published are broadcasts, and all that follows from them.'
_PROVED = (
  'Proved of the program before it runs: a client adds one contribution within '
  'its bound to a release, whose noise is secret, of this round and used once; '
  'nothing else of clients is broadcast, announced or kept. Tested: clipping, '
  'rounding, laws of noise and samples. Trusted: the host, its clock and '
  'generator, and what follows.'
)
_SELECTION = 'Choosing hyperparameters on the same data is not accounted for.'
_HONEST = (
  'Clients are honest, add their share of the noise, and no more than cohort - '
  'min_honest of them drop out or collude with the server.'
)
_KNOWN = 'Which clients take part in a round is not hidden.'
_LATE = 'Whether a client is silent or late must not depend on data.'
_PRETRAINED = (
  'Training starts from the parameters of a file; the data they were fitted to '
  'are not protected.'
)
_BY_LABEL = (
  'The labels of all samples decide which samples a client holds (partition='
  "{!r}): the guarantee ignores that changing one client's data could change "
  "other clients' data."
)
_NOT_ABSENT = (
  'Zero-out is of the contribution: without data a client of this run still '
  'sends something, by a control variate, by what it keeps from earlier rounds '
  'or by weight decay. That a client has no data is not hidden.'
)
_ORDER = (
  'The order in which clients take part is public, and must not depend on data '
  'or on who else takes part.'
)
_NO_STATISTICS = (
  'No row or figure has a statistic of clients without noise: bytes are of '
  'cohorts drawn anew from the public seed.'
)
_COLUMNS = (
  'train_loss', 'participants', 'rejected_clients', 'late_clients',
  'silent_clients', 'other metrics of local work', '*_bytes', 'seconds',
)  # fmt: skip
_OF_TRUST = {
  'central': (), 'secure_aggregation': (_HONEST, _KNOWN), 'local': (_KNOWN,),
}  # fmt: skip


def is_left_out(config: Config, test_of_clients: bool, metric: str) -> bool:
  """Return whether `public_metrics` keeps a metric of models out of rows."""
  if metric == 'train_loss':
    return config.public_metrics == 'hidden'
  of_clients = metric.startswith(('client_', 'personal_')) or test_of_clients
  return of_clients and not config.shows_all


def caveats(
  config: Config,
  mechanism: types.GaussianMechanism,
  trust: types.Trust,
  correlation: Correlation | None,
  *,
  metrics: str,
  sends_without_data: bool = False,
  keeps_state: bool = False,
  test_of_clients: bool | None = None,
) -> tuple[str, ...]:
  """Return the caveats of a private config, in sentences.

  metrics: what private metrics cost, '' if there are none; sends_without_data:
  whether clients with gradients of 0 may send more than 0; test_of_clients:
  whether clients that train hold the test set, None if that is not known.
  """
  zero_out = mechanism.adjacency is types.Adjacency.ZERO_OUT
  of_clients = mechanism.unit == 'client'
  conditions = {
    _LATE: availability.in_force(config),
    _PRETRAINED: config.pretrained is not None,
    _NOT_ABSENT: zero_out and of_clients and sends_without_data,
    _BY_LABEL.format(config.partition): config.partition in partitions.BY_LABEL,
  }
  rows_and_files = _published(config, keeps_state, test_of_clients)
  return (
    _PROVED,
    *_of_order(config, correlation),
    *_OF_TRUST[trust],
    *(text for text, holds in conditions.items() if holds),
    ' '.join(filter(None, (_PUBLISHED, metrics, rows_and_files))),
    _SELECTION,
    *[generators.SENTENCE] * (config.noise_seed is None),
  )


def published(
  config: Config, keeps_state: bool, test_of_clients: bool | None
) -> tuple[list[str], list[str], list[str]]:
  """Return the columns and files without noise, and those to keep secret."""
  holds_out = config.client_holdout > 0 or config.personal_steps is not None
  is_seeded = config.noise_seed is not None
  columns, files = [], ['problem.json'] * is_seeded
  secret = ['seconds'] + ['secret/*'] * (not is_seeded)
  if config.shows_all:
    columns = [*_COLUMNS, *['client_*', 'personal_*'] * holds_out]
    columns += ['*test_*'] * bool(test_of_clients)
    files += ['checkpoints/*']
    files += ['best/*'] * bool(test_of_clients and config.keep_best)
  else:
    secret += ['checkpoints/client_rows/*'] * keeps_state
  return columns, files, secret


def _published(config: Config, keeps_state, test_of_clients) -> str:
  columns, files, secret = published(config, keeps_state, test_of_clients)
  how = 'without noise' if config.shows_all else 'left out'
  text = {
    False: 'No training client holds the test set.',
    True: f'Training clients hold the test set: test metrics are {how}.',
    None: f'If training clients hold the test set, test metrics are {how}.',
  }[test_of_clients]
  if columns:
    text += (
      f' Without noise are {len(columns)} columns of metrics and {len(files)} '
      'files of the run, which docs/guides/privacy.md lists.'
    )
  else:
    text += f' {_NO_STATISTICS}'
    text += ''.join(f' {name} is without noise.' for name in files)
  return f'{text} Not to be published: {", ".join(secret)}.'


def _of_order(config: Config, correlation) -> tuple[str, ...]:
  """Return when clients take part, and what a step of the account is."""
  if correlation is None:
    return ()
  separation = correlation.separation
  length = min(correlation.rounds, config.rounds)
  often = f'one of every {separation} rounds'
  often = 'every round' if separation == 1 else often
  text = f'A client takes part in {often}'
  if config.noise != 'banded':
    return (f'{text}: a step is such a round.', _ORDER)
  return (
    f'{text}. Noise is correlated over {correlation.bands} rounds: a step is '
    f'an epoch of {length} rounds, in which a client moves what is released by '
    f'{correlation.sensitivity(length):.4g} times its bound at most.',
    _ORDER,
  )
