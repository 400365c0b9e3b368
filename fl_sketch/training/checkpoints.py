"""Checkpoints of a run: atomic, and the newest readable one is restored."""

import pathlib
import shutil
from typing import Any, NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.rounds import comms, processes, traffic
from fl_sketch.training import client_state
from fl_sketch.utils import files
import jax
import numpy as np
import orbax.checkpoint as ocp

FORMAT = 2  # of what a checkpoint holds; 1 had clients' rows among the arrays


class CheckpointError(ValueError):
  """There are checkpoints, and none of them can be read."""


class Restored(NamedTuple):
  """What a checkpoint holds.

  Attributes:
    rounds_done: after how many rounds it was made.
    state: without clients' rows, in whose place those of the template are.
    ledger: of the bytes.
    rows: clients' rows, from each process that wrote some.
  """

  rounds_done: int
  state: rounds.FedState
  ledger: traffic.Ledger
  rows: list[client_state.Saved]


class Checkpoints:
  """The checkpoints below one folder, named by the number of rounds done.

  Args:
    folder: where they lie; made if it is not there.
    keep: how many of the newest to keep.
    devices: over which the run is spread now; the order of its sums, and so
      the last bits of its results, depend on them.
  """

  def __init__(self, folder: pathlib.Path, keep: int, devices: int):
    self._folder, self._rows = folder, folder / 'client_rows'
    self._devices = devices
    self._manager = ocp.CheckpointManager(
      folder.absolute(),
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        # The next round donates the buffers that would still be read.
        enable_async_checkpointing=False,
        cleanup_tmp_directories=True,
      ),
    )

  def save(
    self,
    rounds_done: int,
    state: rounds.FedState,
    ledger: traffic.Ledger,
    rows: client_state.Saved | None = None,
  ):
    """Writes one checkpoint; all processes call it, each writes its part.

    Args:
      rounds_done: its name.
      state: its clients' rows are not written.
      ledger: of the bytes.
      rows: those of this process's clients.

    Raises:
      SaveError: it cannot be written. The checkpoints before it stay.
    """
    counts = {
      'ledger': ledger.totals(),
      'devices': self._devices,
      'format': FORMAT,
    }
    arrays = {'state': comms.drop_per_client(state), 'heard': ledger.heard}
    # Rows of a start that died here, of perhaps more processes, must not be
    # taken for some of this one.
    client_state.keep_only(self._rows, self._manager.all_steps())
    processes.wait_for_all(f'no rows of checkpoint {rounds_done}')
    try:
      # Before the rest, without which nobody reads them.
      if rows is not None and rows.rows:
        client_state.write(self._rows / str(rounds_done), rows)
    except OSError as e:
      raise self._no_room(rounds_done, e) from e
    processes.wait_for_all(f'rows of checkpoint {rounds_done}')
    try:
      self._manager.save(
        rounds_done,
        args=ocp.args.Composite(
          arrays=ocp.args.StandardSave(arrays), counts=ocp.args.JsonSave(counts)
        ),
        force=True,
      )
    except OSError as e:
      raise self._no_room(rounds_done, e) from e
    except ValueError as e:
      if 'os_error_code' not in str(e):  # as tensorstore tells those of files
        raise
      raise self._no_room(rounds_done, e) from e

  def _no_room(self, rounds_done, error) -> files.SaveError:
    why = str(error).partition('\n')[0]
    return files.SaveError(
      f'The checkpoint of round {rounds_done} cannot be written to '
      f'{self._folder}: {why}. The last good one is {self.newest}. Make room; '
      'the same command goes on from there.'
    )

  def restore(
    self, state: rounds.FedState, empty: traffic.Ledger
  ) -> Restored | None:
    """The newest checkpoint that can be read, or None if there is none.

    A checkpoint that is corrupt in any process is reported by a warning and
    moved out of the folder, so that the run can write it again. One that the
    disk or the memory keeps from being read stays, and no process goes on.

    Args:
      state: on the mesh, for structure, types and sharding.
      empty: the ledger before the first round.

    Raises:
      CheckpointError: there are checkpoints but none can be read, or the
        newest cannot now, or they are of another format.
    """
    abstract = lambda x: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=x.sharding
    )
    shared = jax.tree.map(abstract, comms.drop_per_client(state))
    like = {'state': shared, 'heard': empty.heard}
    corrupt = {}
    for step in sorted(self._manager.all_steps(), reverse=True):
      saved, why = self._agreed(step, like, state)
      if saved is None:
        corrupt[step] = why
        continue
      self._set_aside(corrupt, step)
      arrays, counts, rows = saved
      if counts['devices'] != self._devices:
        warnings.warn(
          f'Going on with {self._devices} devices where the run had '
          f'{counts["devices"]}: equal up to rounding, not bit for bit.',
          stacklevel=2,
        )
      ledger = traffic.Ledger(empty.dense, arrays['heard'], **counts['ledger'])
      state = comms.with_per_client(arrays['state'], state)
      return Restored(step, state, ledger, rows)
    if corrupt:
      raise CheckpointError(
        f'None of the checkpoints in {self._folder} can be read: {corrupt}. '
        'Delete the folder to start again, or name another workdir.'
      )
    return None

  def _agreed(self, step: int, like: Any, state: rounds.FedState):
    """(arrays, counts, rows) and None, or None and why it is corrupt.

    All processes go back to the checkpoint before, or none, or none goes on.
    """
    saved, error = self._read_twice(step, like, state)
    stops = error is not None and not _is_corrupt(error)
    why = 'another process cannot read it'
    if error is not None:
      why = f'{type(error).__name__}: {(str(error) or "-").splitlines()[0]}'
    if processes.any_process(stops):
      if error is not None and stops and not _is_read_error(error):
        raise error
      raise CheckpointError(
        f'Checkpoint {self._folder / str(step)} cannot be read now ({why}), '
        'and stays where it is. Once it can be read, the same command goes '
        'on from it; once it is moved away, from the one before.'
      ) from error
    if processes.any_process(error is not None):
      return None, why
    return saved, None

  def _read_twice(self, step: int, like: Any, state: rounds.FedState):
    """(arrays, counts, rows) and None, or None and the error; no collective.

    A network drive may fail to read once.
    """
    error = None
    for _ in range(2):
      try:
        self._check_format(step)
        found = self._read(step, arrays=ocp.args.StandardRestore(like))
        rows = client_state.read(self._rows / str(step))
        if client_state.leaves(state) and not rows:
          raise ValueError(f'There is nothing in {self._rows / str(step)}')
        return (found.arrays, found.counts, rows), None
      # Orbax raises bare Exception for some truncated files, so nothing
      # narrower covers a corrupt checkpoint; the reason is always passed on.
      except Exception as e:
        error = e
        if not _is_read_error(e):
          break
    return None, error

  def _set_aside(self, corrupt: dict[int, str], step: int):
    for bad, why in corrupt.items():
      path = self._folder / str(bad)
      aside = self._folder.parent / f'unreadable_checkpoint_{bad}'
      if jax.process_index() == 0:
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
      processes.wait_for_all(f'{bad} set aside')
      warnings.warn(
        f'Checkpoint {path} cannot be read ({why}) and is now {aside}; '
        f'going back to round {step}.',
        stacklevel=3,
      )
    if corrupt:
      self._manager.reload()

  def _check_format(self, step: int):
    """Asked first: other code may have made arrays of any other structure."""
    counts = self._read(step).counts
    if (found := counts.get('format', 1)) != FORMAT:
      raise CheckpointError(
        f'{self._folder / str(step)} is of format {found}, this version reads '
        f'{FORMAT}: go on with the version that made it, or start again in '
        'another workdir.'
      )

  def _read(self, step: int, **items: Any) -> Any:
    """The counts and other items of a checkpoint, read by this process alone.

    Orbax's manager would wait for the others, and so for one that has failed.
    """
    alone = ocp.options.MultiprocessingOptions(
      primary_host=jax.process_index(), active_processes={jax.process_index()}
    )
    handler = ocp.CompositeCheckpointHandler()
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
      return reader.restore(
        self._folder.absolute() / str(step),
        args=ocp.args.Composite(counts=ocp.args.JsonRestore(), **items),
      )

  @property
  def newest(self) -> int | None:
    """Rounds done at the newest checkpoint, None if there is none."""
    return self._manager.latest_step()

  def close(self):
    """Waits for what is still being written."""
    self._manager.close()


def _is_read_error(error: Exception) -> bool:
  """Whether a file could not be read: it may be, a little later."""
  missing = isinstance(error, FileNotFoundError)
  # Tensorstore reports those of files as ValueError.
  return (isinstance(error, OSError) and not missing) or (
    'os_error_code' in str(error)
  )


def _is_corrupt(error: Exception) -> bool:
  """Whether what was read is no checkpoint, so that another one is needed."""
  kept = MemoryError, CheckpointError, jax.errors.JaxRuntimeError
  return not (isinstance(error, kept) or _is_read_error(error))


def parameters(folder: pathlib.Path, rounds_done: int, like: Any) -> Any:
  """The model of one checkpoint in host memory, or None if it is not there.

  Nothing else of it is read, on whatever devices it was made.

  Args:
    folder: of the `Checkpoints`.
    rounds_done: which one.
    like: parameters of the same structure and types.
  """
  path = folder.absolute() / str(rounds_done) / 'arrays'
  if not path.exists():
    return None
  only = {'state': {'params': like}}
  host = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), only)
  how = ocp.args.PyTreeRestore(only, restore_args=host, partial_restore=True)
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    return reader.restore(path, args=how)['state']['params']
