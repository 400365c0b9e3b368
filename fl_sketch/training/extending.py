"""Let a run have more rounds than it was started with."""

import dataclasses
import logging
import pathlib

from fl_sketch.experiment import Experiment, guarantee_of
from fl_sketch.training import identity, same_run
from fl_sketch.training.same_run import WorkdirError

_LOG = logging.getLogger(__name__)


def allowed(folder: pathlib.Path, exp: Experiment, extend: bool) -> set[str]:
  """Return fields that may differ from a folder's run of other rounds.

  Any public run may have more rounds. A private one needs `extend`: its account
  is that of all rounds with the noise multiplier of those completed. It cannot
  have more if they would change rates or noise of rounds completed.

  Raises WorkdirError, with the epsilon of all rounds, if a private run cannot
  be extended, or `extend` is False.
  """
  config, stored = exp.config, same_run.stored_config(folder) or {}
  before: int = stored.get('rounds', config.rounds)
  if before == config.rounds or not (folder / 'problem.json').exists():
    return set()
  change = f'rounds: {before} then, {config.rounds} now'
  if not config.is_private:
    if before < config.rounds and (names := same_run.schedules(config)):
      _LOG.warning(
        f'{change}: {names} is over all rounds; rounds played keep their rates.'
      )
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
  epsilon = _epsilon(exp, change, folder)
  if not extend:
    raise WorkdirError(
      f'{change}: epsilon of all rounds would be {epsilon:.4g}. Set extend '
      '(--extend) to go on, or another workdir.'
    )
  _LOG.warning(f'{change}: epsilon of all rounds is {epsilon:.4g}.')
  return set() if stored['epsilon'] is None else {'epsilon', 'noise_multiplier'}


def _epsilon(exp: Experiment, change: str, folder: pathlib.Path) -> float:
  """Return epsilon of all rounds; raise if noise would be calibrated again."""
  guarantee = exp.guarantee
  assert guarantee is not None
  if exp.config.epsilon is None:
    return guarantee.statement.epsilon
  record = same_run.read(folder / 'problem.json', 'a problem') or {}
  multiplier = record[identity.NOISE] / guarantee.noise_scale
  fixed = {'epsilon': None, 'noise_multiplier': multiplier}
  config = dataclasses.replace(exp.config, **fixed)
  same = guarantee_of(config, exp.make, exp.partition, exp.params)
  assert same is not None
  raise WorkdirError(
    f'{change}: epsilon={exp.config.epsilon} set the noise of rounds played. '
    f'Set epsilon=none, noise_multiplier={multiplier!r} and extend: epsilon of '
    f'all rounds is {same.statement.epsilon:.4g}.'
  )
