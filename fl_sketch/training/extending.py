"""Lets a run have more rounds than it was started with."""

import dataclasses
import logging
import pathlib
from typing import Any

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
  """Returns what may differ from a folder's run of fewer rounds; its entries.

  Any public run may have more. A private one needs `extend`. Its noise keys are
  of the index of a round: new rounds have new ones. Its account is that of all
  rounds with one noise multiplier, that of the rounds played. Where its
  schedule or its secret changes, it must be finished: then no round of it is
  played again with other numbers. Raises WorkdirError, with the epsilon of all
  rounds, if a private run cannot be extended, or `extend` is False.
  """
  c, then = exp.config, same_run.stored_config(folder) or {}
  record = same_run.read(folder / 'problem.json', 'a problem') or {}
  kept = {name: record[name] for name in {identity.SINCE} & record.keys()}
  before: Any = then.get('rounds', c.rounds)
  if before == c.rounds or not record:
    return (), kept
  change = f'rounds: {before} then, {c.rounds} now'
  if c.is_private and before > c.rounds:
    raise WorkdirError(
      f'{change}: a private run may have released more rounds than an account '
      f'of {c.rounds} counts. Set rounds >= {before}, or another workdir.'
    )
  scheduled = [name for name in _SCHEDULES if getattr(c, name) is not None]
  free: set[str] = set()
  if c.is_private:
    if then['epsilon'] is not None:
      free = {'epsilon', 'noise_multiplier'}
    epsilon = _epsilon(exp, change, record)
    if not extend:
      raise WorkdirError(
        f'{change}: epsilon of all rounds would be {epsilon:.4g}. Set extend '
        '(--extend) to go on, or another workdir.'
      )
    if free or 'rounds' not in same_run.resumable(c):
      _check_whole(folder, c, change, before)
      free |= {'rounds', identity.ROUND} if scheduled else {'rounds'}
      kept = {identity.SINCE: before}
    _LOG.warning('%s: epsilon of all rounds is %.4g.', change, epsilon)
  for name in scheduled if before < c.rounds else ():
    text = '%s: %s follows %s over all rounds; rounds played keep their rates.'
    _LOG.warning(text, change, _SCHEDULES[name], name)
  return free, kept


def _epsilon(exp: Any, change: str, record: identity.Record) -> float:
  """Epsilon of all rounds; refuses noise that would be calibrated again."""
  if (c := exp.config).epsilon is None:
    return exp.guarantee.statement.epsilon
  z = record[identity.NOISE] / exp.guarantee.noise_scale
  c = dataclasses.replace(c, epsilon=None, noise_multiplier=z)
  same: Any = guarantee_of(c, exp.make, exp.partition, exp.params)
  raise WorkdirError(
    f'{change}: epsilon={exp.config.epsilon} set the noise of rounds played. '
    f'Set epsilon=none, noise_multiplier={z!r} and extend: epsilon of all '
    f'rounds is {same.statement.epsilon:.4g}.'
  )


def _check_whole(folder, c, change, before):
  """Refuses other numbers of private rounds that may be played again."""
  if c.noise == 'banded' or c.sampling == 'random_allocation':
    why = 'draws noise or cohorts for several rounds at once'
  elif not is_finished(folder, before):
    why = 'was stopped, and would play rounds again with other numbers'
  else:
    return
  raise WorkdirError(
    f'{change}: this private run {why}. Set another workdir, and '
    f'init_from={folder}.'
  )
