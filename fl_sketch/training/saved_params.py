"""Writes and reads the model alone, as folder/ROUNDS of rounds done."""

from collections.abc import Collection
import pathlib
from typing import Any
import warnings

from fl_sketch.utils import digests, files
import jax
import numpy as np
import orbax.checkpoint as ocp

_ARRAYS = 'arrays'  # as in a checkpoint, of which `read` reads the model
# Folders of parameters in that of a run.
LAST, BEST, FIRST = ('checkpoints', 'params'), 'best', 'init'


class CheckpointError(ValueError):
  """A folder holds checkpoints, none of which can be read."""


def write(folder: pathlib.Path, rounds_done: int, params: Any):
  """Writes a tree of parameters atomically, from this process alone.

  Raises SaveError if they cannot be written.
  """
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  tree = {'state': {'params': jax.device_get(params)}}
  message = lambda why: f'{path.parent} cannot be written: {why}.'
  with files.save_errors(message, path), _checkpointer() as writer:
    digests.unseal(path.parent)
    writer.save(path, args=ocp.args.PyTreeSave(tree), force=True)
    digests.seal(path.parent)


def read(folder: pathlib.Path, rounds_done: int, like: Any = None) -> Any:
  """Reads the model, also of a checkpoint, to host memory; None if missing.

  Any number of devices may have written it. No file is changed. The result has
  the structure and types of `like`; None makes dicts and lists. Raises
  ValueError if a file is not as it was written.
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
  """Rounds done of all complete parameters in a folder, ascending."""
  found = (path.parent.name for path in folder.glob(f'*/{_ARRAYS}'))
  return sorted(int(name) for name in found if name.isdecimal())


def rounds_of(run: pathlib.Path, *names: str) -> list[int]:
  """Rounds done of all parameters in these folders of a run, ascending."""
  return sorted({done for name in names for done in rounds_in(run / name)})


def newest(
  run: pathlib.Path, only: Collection[int] = (), like: Any = None
) -> tuple[int, Any]:
  """Returns rounds done and parameters: those of `only`, else the last.

  A damaged checkpoint is reported by a warning: the one before it is read.
  Raises CheckpointError if there is none yet, or none can be read.
  """
  damaged: dict[int, CheckpointError] = {}
  while there := {*(only or rounds_of(run, *LAST))} - damaged.keys():
    done = max(there)
    try:
      params = _read_of(run, done, like)
    except CheckpointError as e:
      damaged[done] = e
      continue
    if params is not None:
      for error in damaged.values():
        warnings.warn(f'{error}; going back to round {done}.', stacklevel=3)
      return done, params
    if only:
      break  # else the run has deleted them, and written newer ones
  for error in damaged.values():
    raise error
  raise CheckpointError(
    f'{run} holds no parameters{" any more" if only else " yet"}.'
  )


def _read_of(run: pathlib.Path, rounds_done: int, like: Any) -> Any:
  for folder in (run / name for name in (*LAST, BEST, FIRST)):
    try:
      if (params := read(folder, rounds_done, like)) is not None:
        return params
    # Orbax raises bare Exception for some truncated files.
    except Exception as e:
      if rounds_done in rounds_in(folder):
        why = str(e).partition('\n')[0]
        raise CheckpointError(
          f'{folder / str(rounds_done)} cannot be read: {why}'
        ) from e
  return None


def this_process() -> ocp.options.MultiprocessingOptions:
  """Options of Orbax under which no process waits for another."""
  own = jax.process_index()
  only: Any = {'primary_host': own, 'active_processes': {own}}
  return ocp.options.MultiprocessingOptions(**only)


def _checkpointer() -> ocp.Checkpointer:
  alone: Any = {'multiprocessing_options': this_process()}
  return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**alone), **alone)
