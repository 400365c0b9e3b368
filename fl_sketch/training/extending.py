"""Let a run have more rounds than it was started with."""

import dataclasses
import logging
import pathlib

from fl_sketch.experiment import Experiment, guarantee_of
from fl_sketch.training import identity, same_run
from fl_sketch.training.same_run import WorkdirError
from fl_sketch.training.workdir import Allowed, is_finished

_LOG = logging.getLogger(__name__)
_SCHEDULES = {
  'final_server_lr': 'server_lr', 'server_schedule': 'server_lr',
  'client_schedule': 'client_lr',
}  # fmt: skip


def allowed(folder: pathlib.Path, exp: Experiment, extend: bool) -> Allowed:
  """Return what may differ from a folder's run of fewer rounds; its entries.

  Any public run may have more rounds. A private one needs `extend`: its account
  is that of all rounds with the noise multiplier of those completed. Where its
  schedule or its secret changes, it must be finished, so that no round of it is
  played again with other numbers.

  Raises WorkdirError, with the epsilon of all rounds, if a private run cannot
  be extended, or `extend` is False.
  """
  config, stored = exp.config, same_run.stored_config(folder) or {}
  record = same_run.read(folder / 'problem.json', 'a problem') or {}
  entries = {name: record[name] for name in {identity.SINCE} & record.keys()}
  before: int = stored.get('rounds', config.rounds)
  if before == config.rounds or not record:
    return (), entries
  change = f'rounds: {before} then, {config.rounds} now'
  if config.is_private and before > config.rounds:
    raise WorkdirError(
      f'{change}: a private run may have released more rounds than an account '
      f'of {config.rounds} counts. Set rounds >= {before}, or another workdir.'
    )
  scheduled = [x for x in _SCHEDULES if getattr(config, x) is not None]
  free: set[str] = set()
  if config.is_private:
    if stored['epsilon'] is not None:
      free = {'epsilon', 'noise_multiplier'}
    epsilon = _epsilon(exp, change, record)
    if not extend:
      raise WorkdirError(
        f'{change}: epsilon of all rounds would be {epsilon:.4g}. Set extend '
        '(--extend) to go on, or another workdir.'
      )
    if free or 'rounds' not in same_run.resumable(config):
      _check_whole(folder, config, change, before)
      free |= {'rounds', identity.ROUND} if scheduled else {'rounds'}
      entries = {identity.SINCE: before}
    _LOG.warning('%s: epsilon of all rounds is %.4g.', change, epsilon)
  if before < config.rounds:
    text = '%s: %s follows %s over all rounds; rounds played keep their rates.'
    for name in scheduled:
      _LOG.warning(text, change, _SCHEDULES[name], name)
  return free, entries


def _epsilon(exp: Experiment, change: str, record: identity.Record) -> float:
  """Return epsilon of all rounds; raise if noise would be calibrated again."""
  guarantee = exp.guarantee
  assert guarantee is not None
  if exp.config.epsilon is None:
    return guarantee.statement.epsilon
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


def _check_whole(folder, config, change, before):
  """Raise if private rounds might be played again with other numbers."""
  if config.noise == 'banded' or config.sampling == 'random_allocation':
    why = 'draws noise or cohorts for several rounds at once'
  elif not is_finished(folder, before):
    why = 'was stopped, and would play rounds again with other numbers'
  else:
    return
  raise WorkdirError(
    f'{change}: this private run {why}. Set another workdir, and '
    f'init_from={folder}.'
  )
