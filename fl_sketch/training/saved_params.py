"""Writes and reads the model alone, as folder/ROUNDS of rounds done."""

import pathlib
from typing import Any

from fl_sketch.utils import files
import jax
import numpy as np
import orbax.checkpoint as ocp

_ARRAYS = 'arrays'  # as in a checkpoint, of which `read` reads the model


def write(folder: pathlib.Path, rounds_done: int, params: Any):
  """Writes a tree of parameters atomically, from this process alone.

  Raises:
    SaveError: they cannot be written.
  """
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  content = ocp.args.PyTreeSave({'state': {'params': jax.device_get(params)}})
  message = lambda why: f'{path.parent} cannot be written: {why}.'
  with files.save_errors(message), _checkpointer() as writer:
    writer.save(path, args=content, force=True)


def read(folder: pathlib.Path, rounds_done: int, like: Any = None) -> Any:
  """Reads the model, also of a checkpoint, to host memory; None if missing.

  Any number of devices may have written it. No file is changed. The result has
  the structure and types of `like`; None makes dicts and lists.
  """
  path = folder.absolute() / str(rounds_done) / _ARRAYS
  if not path.exists():
    return None
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


def this_process() -> ocp.options.MultiprocessingOptions:
  """Options of Orbax under which no process waits for another."""
  own = jax.process_index()
  return ocp.options.MultiprocessingOptions(
    primary_host=own, active_processes={own}
  )


def _checkpointer() -> ocp.Checkpointer:
  return ocp.Checkpointer(
    ocp.PyTreeCheckpointHandler(multiprocessing_options=this_process()),
    multiprocessing_options=this_process(),
  )
