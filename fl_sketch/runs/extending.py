"""Let a run have more rounds than it was started with."""

import logging
import pathlib

from fl_sketch.runs import Experiment, identity, same_run
from fl_sketch.runs.same_run import WorkdirError

_LOG = logging.getLogger(__name__)


def allowed(folder: pathlib.Path, exp: Experiment, extend: bool) -> set[str]:
  """Return fields that may differ from a folder's run of other rounds.

  Any public run may have more rounds. A private one needs `extend`: its account
  is that of all rounds with the noise multiplier of those completed. It cannot
  have more if they would change rates or noise of rounds completed.

  Raises WorkdirError, with the epsilon of all rounds, if a private run cannot
  be extended, or `extend` is False.
  """
  config, stored = exp.config, same_run.stored_config(folder)
  before: int = stored.get('rounds', config.rounds)
  if before == config.rounds or not (folder / 'problem.json').exists():
    return set()
  change = f'rounds: {before} then, {config.rounds} now'
  if not config.is_private:
    if before < config.rounds and (names := same_run.schedules(config)):
      text = '%s: %s is over all rounds; rounds completed keep their rates.'
      _LOG.warning(text, change, names)
    return set()
  if before > config.rounds:
    raise WorkdirError(
      f'{change}: a private run may have released more rounds than an account '
      f'of {config.rounds} counts. Set rounds >= {before}, or another workdir.'
    )
  if same_run.follows_rounds(config):
    raise WorkdirError(
      f'{change}: rates or noise of this private run depend on rounds. Set '
      f'another workdir, and init_from={folder}.'
    )
  assert exp.guarantee is not None
  if config.epsilon is not None:  # it would calibrate the noise again
    record = same_run.read(folder / 'problem.json', 'a problem') or {}
    multiplier = record[identity.NOISE] / exp.guarantee.noise_scale
    raise WorkdirError(
      f'{change}: epsilon={config.epsilon} set the noise of rounds completed. '
      f'Set epsilon=none and noise_multiplier={multiplier!r}.'
    )
  epsilon = exp.guarantee.statement.epsilon
  if not extend:
    raise WorkdirError(
      f'{change}: epsilon of all rounds would be {epsilon:.4g}. Set extend '
      '(--extend) to go on, or another workdir.'
    )
  _LOG.warning('%s: epsilon of all rounds is %.4g.', change, epsilon)
  return set() if stored['epsilon'] is None else {'epsilon', 'noise_multiplier'}
