"""Write and read the model alone, as folder/ROUNDS of rounds done."""

from collections.abc import Collection
import pathlib
from typing import Any

from fl_sketch.utils import digests, files
from fl_sketch.utils.types import Params
import jax
import numpy as np
import orbax.checkpoint as ocp

_ARRAYS = 'arrays'  # as in a checkpoint, of which `read` reads the model
# Folders of parameters in that of a run.
LAST, BEST, FIRST = ('checkpoints', 'params'), 'best', 'init'


class CheckpointError(ValueError):
  """A checkpoint cannot be read, or there is none."""


def write(folder: pathlib.Path, rounds_done: int, params: Params):
  """Save the parameters after `rounds_done` rounds, from this process alone."""
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  tree = {'state': {'params': jax.device_get(params)}}
  message = lambda why: f'{path.parent} cannot be written: {why}.'
  with files.save_errors(message, path), _checkpointer() as writer:
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


def this_process() -> ocp.options.MultiprocessingOptions:
  """Return options of Orbax under which no process waits for another."""
  process = jax.process_index()
  return ocp.options.MultiprocessingOptions(
    primary_host=process, active_processes={process}
  )


def _checkpointer() -> ocp.Checkpointer:
  alone: Any = {'multiprocessing_options': this_process()}
  return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**alone), **alone)
