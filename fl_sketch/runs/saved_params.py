"""Read and write parameters alone, in FOLDER/ROUNDS: last, best, initial."""

from collections.abc import Collection, Iterable
import dataclasses
import math
import os
import pathlib
from typing import Any

from fl_sketch.runs import client_state, metrics
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.same_run import WorkdirError
from fl_sketch.utils import UserError, digests, files
from fl_sketch.utils.types import Params
import jax
import numpy as np
import orbax.checkpoint as ocp

_ARRAYS = 'arrays'  # as in a checkpoint, of which `read` reads the model
# Folders of parameters in that of a run.
LAST, BEST, FIRST = ('checkpoints', 'params'), 'best', 'init'
_CAVEAT = (
  'Training starts from the parameters of another run: unless its data are '
  'public, its privacy loss adds to this one.'
)


class CheckpointError(UserError, ValueError):
  """A checkpoint cannot be read, or there is none."""


def write(folder: pathlib.Path, rounds_done: int, params: Params):
  """Save the parameters after `rounds_done` rounds, from this process alone."""
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  tree = {'state': {'params': jax.device_get(params)}}
  with files.save_errors(path.parent), _checkpointer() as writer:
    digests.unseal(path.parent)
    writer.save(path, args=ocp.args.PyTreeSave(tree), force=True)
    digests.seal(path.parent)


def read(folder: pathlib.Path, rounds_done: int, like: Params = None) -> Params:
  """Read the model, also of a checkpoint, to host memory; None if missing.

  The result has the structure and types of `like`; None makes dicts and lists.
  Raises ValueError if a file is not as it was written.
  """
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  if not path.exists():
    return None
  digests.check_seal(path.parent)
  if like is None:
    handler: Any = ocp.PyTreeCheckpointHandler()
    like = handler.metadata(path).tree['state']['params']
  only = {'state': {'params': like}}
  host = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), only)
  how = ocp.args.PyTreeRestore(only, restore_args=host, partial_restore=True)
  with _checkpointer() as reader:
    return reader.restore(path, args=how)['state']['params']


def rounds_in(folder: pathlib.Path) -> list[int]:
  """Return rounds done of all complete parameters in a folder, ascending."""
  names = (path.parent.name for path in folder.glob(f'*/{_ARRAYS}'))
  return sorted(int(name) for name in names if name.isdecimal())


def rounds_of(run: pathlib.Path, *names: str) -> list[int]:
  """Return rounds done of all parameters in folders of a run, ascending."""
  return sorted({done for name in names for done in rounds_in(run / name)})


def newest(
  run: pathlib.Path, only: Collection[int] = (), like: Params = None
) -> tuple[int, Params]:
  """Return rounds done and parameters: those of `only`, else the last.

  Raises CheckpointError if there is none yet, or it cannot be read.
  """
  while rounds := {*(only or rounds_of(run, *LAST))}:
    done = max(rounds)
    if (params := _read_of(run, done, like)) is not None:
      return done, params
    if only:
      break  # else the run has deleted them, and written newer ones
  raise CheckpointError(
    f'{run} holds no parameters{" any more" if only else " yet"}.'
  )


def _read_of(run: pathlib.Path, rounds_done: int, like: Params) -> Params:
  for folder in (run / name for name in (*LAST, BEST, FIRST)):
    try:
      if (params := read(folder, rounds_done, like)) is not None:
        return params
    # Orbax raises bare Exception for some truncated files.
    except Exception as e:
      if rounds_done in rounds_in(folder):
        why = str(e).partition('\n')[0]
        raise CheckpointError(
          f'{folder / str(rounds_done)} cannot be read ({why}). Restore it, or '
          'name the rounds of another checkpoint.'
        ) from e
  return None


def begun(
  exp: Experiment,
  folder: str | os.PathLike,
  source: str | os.PathLike | None = None,
) -> Experiment:
  """Return the experiment of a folder with its initial parameters.

  They are those of the run `source`: of its last checkpoint, or of the best if
  it is the subfolder best/. A resumed run has a copy in init/. Raises
  WorkdirError, which names the array, if they do not fit the model, or if the
  folder has a run that began otherwise.
  """
  run, only = pathlib.Path(folder), [0]
  if not rounds_in(run / FIRST):
    if source is None:
      return exp
    if (run / 'config.json').exists():
      raise WorkdirError(
        f'{run} holds a run: init_from={source} needs another workdir.'
      )
    run = pathlib.Path(source)
    if only := rounds_in(run)[-1:]:  # best/, or checkpoints/
      run = run.parent
    elif not any((run / name).exists() for name in ('config.json', *LAST)):
      raise WorkdirError(f'init_from={source} has no run in it.')
  if exp.hyper.frozen is not None:
    raise WorkdirError(
      f'init_from={source} does not support lora; set pretrained to a file of '
      'its run that save_safetensors writes.'
    )
  params = newest(run, only)[1]
  exp = exp._replace(params=_fitted(params, exp.params, source))
  if (guarantee := exp.guarantee) is not None:
    caveats = dict.fromkeys((*guarantee.statement.caveats, _CAVEAT))  # once
    stated = dataclasses.replace(guarantee.statement, caveats=(*caveats,))
    exp = exp._replace(guarantee=guarantee._replace(statement=stated))
  return exp


def keep_initial(folder: pathlib.Path, params: Params):
  """Write the copy from the first process, if there is none yet."""
  copy = folder / FIRST
  if jax.process_index() == 0 and not rounds_in(copy):
    write(copy, 0, params)


class Best:
  """The folder best/: parameters at the best value of a metric, by rounds done.

  The best before every checkpoint stays, for a run that resumes from there.
  """

  def __init__(self, folder: pathlib.Path, metric: str | None, checkpoints):
    self._folder = folder / 'best'
    self._metric, self._better = metrics.ranked_by(metric or '')
    self._rounds: list[int] = []  # at which the metric was better than before
    self._value = math.nan
    self._writes = metric is not None and jax.process_index() == 0
    if self._writes:
      for row in metrics.read_metrics(folder):
        self._note(row)
      self.keep_only(checkpoints)

  def consider(self, row: metrics.Row, params: Params):
    """Write the parameters of a row that was just logged, if it is the best."""
    if self._writes and self._note(row):
      write(self._folder, self._rounds[-1], params)

  def keep_only(self, checkpoints: Iterable[int]):
    """Delete what is the best neither now nor at one of these checkpoints."""
    if self._writes:
      best = {*self._rounds[-1:]}
      for done in checkpoints:
        best.update([rounds for rounds in self._rounds if rounds <= done][-1:])
      client_state.keep_only(self._folder, best)

  def summary(self) -> dict[str, Any]:
    """Return the metric, its best value and when it was, for summary.json."""
    if not self._rounds:
      return {}
    best = {'metric': self._metric, 'value': self._value}
    return {'best': best | {'rounds_done': self._rounds[-1]}}

  def _note(self, row: metrics.Row) -> bool:
    """Whether the metric of a row is better than in all before it."""
    value = row.get(self._metric)
    if value is None or math.isnan(value):
      return False
    if self._rounds and self._better(self._value, value) == self._value:
      return False
    self._rounds.append(row['round'] + 1)
    self._value = value
    return True


def this_process() -> ocp.options.MultiprocessingOptions:
  """Return options of Orbax under which no process waits for another."""
  process = jax.process_index()
  return ocp.options.MultiprocessingOptions(
    primary_host=process, active_processes={process}
  )


def _checkpointer() -> ocp.Checkpointer:
  alone: Any = {'multiprocessing_options': this_process()}
  return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**alone), **alone)


def _fitted(params: Params, like: Params, source) -> Params:
  given, wanted = _by_name(params), _by_name(like)
  for name in {**wanted, **given}:
    there, here = (getattr(x.get(name), 'shape', None) for x in (given, wanted))
    if there != here:
      raise WorkdirError(
        f'init_from={source}: {name} has shape {there} there, {here} here.'
      )
  leaves = [np.asarray(given[name], x.dtype) for name, x in wanted.items()]
  return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _by_name(tree: Params) -> dict[str, jax.Array]:
  """Return the arrays of a tree by their paths, as 'dense/kernel'."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): x
    for path, x in jax.tree.leaves_with_path(tree)
  }
