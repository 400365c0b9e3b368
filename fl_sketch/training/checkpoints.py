"""Writes checkpoints atomically, and restores the newest readable one."""

import dataclasses
import pathlib
import shutil
from typing import Any, NamedTuple
import warnings

from fl_sketch.rounds import FedState, comms, processes, traffic
from fl_sketch.training import client_state, saved_params
from fl_sketch.training.saved_params import CheckpointError
from fl_sketch.utils import digests, files
import jax
import orbax.checkpoint as ocp

FORMAT = 2  # of a checkpoint's contents; in 1 client state was in the arrays


class Restored(NamedTuple):
  """The contents of a checkpoint."""

  rounds_done: int
  state: FedState  # its per-client state is that of the template
  ledger: traffic.Ledger
  rows: list[client_state.Saved]  # from each process that wrote some


class Checkpoints:
  """Writes and reads the checkpoints of a folder, named by rounds done."""

  def __init__(self, folder: pathlib.Path, keep: int, devices: int):
    self._folder, self._rows = folder, folder / 'client_rows'
    self._devices = devices  # of the run now: they decide the order of sums
    options = ocp.CheckpointManagerOptions(
      max_to_keep=keep,
      # The next round donates the buffers that would still be read.
      enable_async_checkpointing=False,
      cleanup_tmp_directories=True,
    )
    self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

  def save(
    self,
    rounds_done: int,
    state: FedState,
    ledger: traffic.Ledger,
    rows: client_state.Saved | None = None,
  ):
    """Writes one checkpoint; every process must call it and writes its part.

    `rows` is the state of its clients; that in `state` is not written. Raises
    SaveError if it cannot be written. The earlier checkpoints stay.
    """
    counts = {'ledger': ledger.totals(), 'devices': self._devices}
    counts |= {'format': FORMAT}
    arrays = {'state': comms.drop_per_client(state), 'heard': ledger.heard}
    items = ocp.args.Composite(
      arrays=ocp.args.StandardSave(arrays), counts=ocp.args.JsonSave(counts)
    )
    message = lambda why: (
      f'The checkpoint of round {rounds_done} cannot be written to '
      f'{self._folder}: {why}. The last good one is {self.newest}. Make '
      'room; the same command resumes from it.'
    )
    # Rows of an earlier start, which died once it wrote them, must not mix in.
    client_state.keep_only(self._rows, self._manager.all_steps())
    processes.wait_for_all(f'no rows of checkpoint {rounds_done}')
    with files.save_errors(message, self._folder):
      # First, since rows without the rest of a checkpoint are never read.
      if rows is not None and rows.rows:
        client_state.write(self._rows / str(rounds_done), rows)
      processes.wait_for_all(f'rows of checkpoint {rounds_done}')
      self._manager.save(rounds_done, args=items, force=True)
      if jax.process_index() == 0:  # the files of all processes are there
        digests.seal(self._folder / str(rounds_done))

  def restore(self, state: FedState, empty: traffic.Ledger) -> Restored | None:
    """Restores the newest checkpoint that can be read; None if there is none.

    A checkpoint that is corrupt in any process is reported by a warning and
    moved out of the folder, so that the run can write it again. After an error
    of the disk or the memory the checkpoint stays, and all processes stop.
    `state`, on the mesh, gives structure, types and sharding. Raises
    CheckpointError if there are checkpoints but none can be read, the newest
    cannot be read at the moment, or they are of another format.
    """
    like = {'state': comms.drop_per_client(state), 'heard': empty.heard}
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
          f'Resuming on {self._devices} devices where the run had '
          f'{counts["devices"]}: equal up to rounding, not bit for bit.',
          stacklevel=2,
        )
      known = counts['ledger'] | {'heard': arrays['heard']}
      ledger = dataclasses.replace(empty, **known)
      state = comms.with_per_client(arrays['state'], state)
      return Restored(step, state, ledger, rows)
    if corrupt:
      raise CheckpointError(
        f'None of the checkpoints in {self._folder} can be read: {corrupt}. '
        'Delete the folder to start again, or name another workdir.'
      )
    return None

  def _agreed(self, step: int, like: Any, state: FedState):
    """Returns (arrays, counts, rows), None; or None, why; or stops, in all."""
    saved, error = self._read_twice(step, like, state)
    kept = MemoryError, CheckpointError, jax.errors.JaxRuntimeError
    read_error = _is_read_error(error)
    why = 'another process cannot read it'
    if error is not None:
      why = f'{type(error).__name__}: {(str(error) or "-").splitlines()[0]}'
    if processes.any_process(isinstance(error, kept) or read_error):
      if error is not None and isinstance(error, kept) and not read_error:
        raise error
      raise CheckpointError(
        f'Checkpoint {self._folder / str(step)} cannot be read now ({why}), '
        'and stays where it is. Once it can be read, the same command goes '
        'on from it; once it is moved away, from the one before.'
      ) from error
    if processes.any_process(error is not None):
      return None, why
    return saved, None

  def _read_twice(self, step: int, like: Any, state: FedState):
    """Returns (arrays, counts, rows), None; or None, error; no collective."""
    path, error = self._folder / str(step), None
    for _ in range(2):  # a network drive may fail to read once
      try:
        digests.check_seal(path)
        # The arrays of another format may have any structure.
        if (number := self._read(step).counts.get('format', 1)) != FORMAT:
          raise CheckpointError(
            f'{path} is of format {number}, this version reads {FORMAT}: '
            'resume with the version that wrote it, or start again in another '
            'workdir.'
          )
        items = self._read(step, arrays=ocp.args.StandardRestore(like))
        counts = {name: items.counts[name] for name in ('ledger', 'devices')}
        rows = client_state.read(self._rows / str(step))
        if client_state.leaves(state) and not rows:
          raise ValueError(f'There is nothing in {self._rows / str(step)}')
        return (items.arrays, counts, rows), None
      # Orbax raises bare Exception for some truncated files; it is passed on.
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

  def _read(self, step: int, **items: Any) -> Any:
    """Reads counts and other items of a checkpoint, in this process alone."""
    # Orbax's manager would wait for the others, one of which may fail.
    alone = saved_params.this_process()
    handler = ocp.CompositeCheckpointHandler()
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
      return reader.restore(
        self._folder.absolute() / str(step),
        args=ocp.args.Composite(counts=ocp.args.JsonRestore(), **items),
      )

  @property
  def rounds(self) -> list[int]:
    """Rounds done at every checkpoint."""
    return list(self._manager.all_steps())

  @property
  def newest(self) -> int | None:
    """Rounds done at the newest checkpoint, None if there is none."""
    return self._manager.latest_step()

  def close(self):
    """Waits until all files are written."""
    self._manager.close()


def _is_read_error(error: Any) -> bool:
  """Whether reading a file failed, which may succeed a little later."""
  failed = isinstance(error, OSError) or files.has_os_code(error)
  return failed and not isinstance(error, FileNotFoundError)
