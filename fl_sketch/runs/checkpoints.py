"""Write checkpoints atomically, and restore the newest one."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

from fl_sketch.rounds import FedState, comms, peers, traffic
from fl_sketch.runs import client_state, saved_params
from fl_sketch.runs.saved_params import CheckpointError
from fl_sketch.utils import digests, files
import jax
import orbax.checkpoint as ocp


class Restored(NamedTuple):
  """The contents of a checkpoint."""

  rounds_done: int
  state: FedState  # its per-client state is that of the template
  ledger: traffic.Ledger
  rows: list[client_state.Saved]  # from each process that wrote some


class Checkpoints:
  """The checkpoints of a folder, named by rounds done."""

  def __init__(self, folder: pathlib.Path, keep: int):
    self._folder, self._rows = folder, folder / 'client_rows'
    options = ocp.CheckpointManagerOptions(
      max_to_keep=keep,
      # The next round donates the buffers that would still be read.
      enable_async_checkpointing=False,
      cleanup_tmp_directories=True,
    )
    self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

  def save(self, rounds_done: int, state: FedState, ledger, rows):
    """Write one checkpoint; every process must call it and writes its part.

    `rows`, `client_state.Saved`, is the state of its clients; that in `state`
    is not written.
    """
    counts = {'ledger': ledger.totals()}
    arrays = {'state': comms.drop_per_client(state), 'heard': ledger.heard}
    items = ocp.args.Composite(
      arrays=ocp.args.StandardSave(arrays), counts=ocp.args.JsonSave(counts)
    )
    advice = (
      f'The last good checkpoint is {self.newest}. Make room; the same command '
      'resumes from it.'
    )
    # Rows of an earlier start, which died once it wrote them, must not mix in.
    client_state.keep_only(self._rows, self._manager.all_steps())
    peers.wait_for_all(f'no rows of checkpoint {rounds_done}')
    with files.save_errors(self._folder, advice):
      # First, since rows without the rest of a checkpoint are never read.
      if rows.rows:
        client_state.write(self._rows / str(rounds_done), rows)
      peers.wait_for_all(f'rows of checkpoint {rounds_done}')
      self._manager.save(rounds_done, args=items, force=True)
      if jax.process_index() == 0:  # the files of all processes are there
        digests.seal(self._folder / str(rounds_done))

  def restore(self, state: FedState, empty: traffic.Ledger) -> Restored | None:
    """Restore the newest checkpoint; None if there is none.

    `state`, on the mesh, gives structure, types and sharding. Raises
    CheckpointError, in all processes, if one of them cannot read it.
    """
    if (newest := self.newest) is None:
      return None
    path = self._folder / str(newest)
    error: Exception | None = None
    try:
      digests.check_seal(path)
      arrays, counts = self._read(newest, state, empty)
      rows = client_state.read(self._rows / str(newest))
      count = len(client_state.leaves(state))
      if any(len(part.rows) != count for part in rows) or (count and not rows):
        raise ValueError(f'{self._rows / str(newest)} lacks arrays')
    # Orbax raises bare Exception for some truncated files.
    except Exception as e:
      error = e
    if peers.any_process(error is not None):
      why = 'another process cannot read it'
      if error is not None:
        if isinstance(error, MemoryError | jax.errors.JaxRuntimeError):
          raise error  # the files may be good
        why = f'{type(error).__name__}: {(str(error) or "-").splitlines()[0]}'
      raise CheckpointError(
        f'{path} cannot be read ({why}). Restore it, or delete it: the same '
        'command then resumes from the checkpoint before.'
      ) from error
    totals = counts['ledger'] | {'heard': arrays['heard']}
    ledger = dataclasses.replace(empty, **totals)
    state = comms.with_per_client(arrays['state'], state)
    return Restored(newest, state, ledger, rows)

  def _read(self, step: int, state: FedState, empty: traffic.Ledger) -> Any:
    like = {'state': comms.drop_per_client(state), 'heard': empty.heard}
    # Orbax's manager would wait for the others, one of which may fail.
    alone = saved_params.this_process()
    handler = ocp.CompositeCheckpointHandler()
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
      items = ocp.args.Composite(
        counts=ocp.args.JsonRestore(), arrays=ocp.args.StandardRestore(like)
      )
      path = self._folder.absolute() / str(step)
      restored = reader.restore(path, args=items)
    return restored.arrays, restored.counts

  @property
  def rounds(self) -> list[int]:
    """Rounds done at every checkpoint."""
    return list(self._manager.all_steps())

  @property
  def newest(self) -> int | None:
    """Rounds done at the newest checkpoint, None if there is none."""
    return self._manager.latest_step()

  def close(self):
    """Wait until all files are written."""
    self._manager.close()
