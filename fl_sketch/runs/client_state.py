"""Storage of per-client state: on the devices, or memory-mapped on the host."""

from collections.abc import Iterable
import os
import pathlib
import shutil
import tempfile
from typing import Any, NamedTuple

from fl_sketch.rounds import FedState, comms, mesh as mesh_lib
from fl_sketch.utils import files
import jax
from jax.sharding import Mesh
import numpy as np


class Saved(NamedTuple):
  """Per-client state in a checkpoint, without clients that never took part."""

  ids: np.ndarray  # int64[n], clients
  rows: list[np.ndarray]  # [n, ...], one for each leaf of `PerClient` state


class OnDevice:
  """The state of all clients on the devices; rounds index it by id."""

  def __init__(self, mesh: Mesh):
    self._mesh = mesh

  def attach(self, state: FedState, ids: np.ndarray) -> FedState:
    """Return `state`, which holds the state of every client."""
    return state

  def keep(self, state: FedState, ids: np.ndarray):
    """Do nothing: the round has updated `state`."""

  def saved(self, state: FedState) -> Saved:
    """Return the state of all clients for a checkpoint."""
    rows = [np.asarray(x) for x in leaves(state)]
    return Saved(np.arange(len(rows[0]) if rows else 0), rows)

  def restored(self, state: FedState, parts: Iterable[Saved]) -> FedState:
    """Return the initial `state` with the client state of a checkpoint."""
    rows = [np.array(x) for x in leaves(state)]
    for part in parts:
      for row, saved in zip(rows, part.rows, strict=True):
        row[part.ids] = saved.view(row.dtype)
    return _with(state, mesh_lib.place(self._mesh, rows))


class OnHost:
  """The state of this process's clients in a memory-mapped file without a name.

  `state` is of a population of one, whose client has every client's first
  state. Raises SaveError if the disk is too small.
  """

  def __init__(self, mesh: Mesh, state: FedState, clients: range, folder):
    self._mesh, self._clients = mesh, clients
    self._initial = [np.asarray(x)[0] for x in leaves(state)]
    self._rows = [_file(len(clients), row, folder) for row in self._initial]
    self._written = np.zeros(len(clients), bool)

  def attach(self, state: FedState, ids: np.ndarray) -> FedState:
    """Return `state` with that of clients int[lanes]; others are padding."""
    place, held = self._places(ids)
    written = held & self._written[place]
    rows = []
    for row, initial in zip(self._rows, self._initial, strict=True):
      old = row[place]
      by_client = written.reshape(-1, *[1] * (old.ndim - 1))
      rows.append(np.where(by_client, old, initial[None]))
    return _with(state, mesh_lib.place_local(self._mesh, rows))

  def keep(self, state: FedState, ids: np.ndarray):
    """Copy the rows of a cohort out of `state`; `ids` are those of `attach`."""
    place, held = self._places(ids)
    for row, new in zip(self._rows, leaves(state), strict=True):
      row[place[held]] = mesh_lib.local_shards(new)[held]
    self._written[place[held]] = True

  def saved(self, state: FedState) -> Saved:
    """Return the state of this process's clients for a checkpoint."""
    place = np.flatnonzero(self._written)
    ids = place + self._clients.start
    return Saved(ids, [row[place] for row in self._rows])

  def restored(self, state: FedState, parts: Iterable[Saved]) -> FedState:
    """Read the state of this process's clients from a checkpoint."""
    self._written[:] = False
    for part in parts:
      place, held = self._places(part.ids)
      for row, saved in zip(self._rows, part.rows, strict=True):
        row[place[held]] = saved.view(row.dtype)[held]
      self._written[place[held]] = True
    return state

  def _places(self, ids):
    """Positions of clients' state, 0 if not local; which are local."""
    place = np.asarray(ids, np.int64) - self._clients.start
    held = (place >= 0) & (place < len(self._clients))
    return np.where(held, place, 0), held


def _file(count, row, folder):
  """A memory-mapped array [count, ...] whose disk blocks are all allocated."""
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  shape = count, *row.shape
  with tempfile.TemporaryFile(dir=folder) as file:
    # A write to mapped memory without disk space would kill the process.
    size = max(1, count * row.nbytes)
    needs = f'Client state needs {size:,} bytes.'
    with files.save_errors(pathlib.Path(folder), needs):
      os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(file, row.dtype, 'r+', shape=shape)


def write(folder: pathlib.Path, saved: Saved):
  """Write this process's client state to a checkpoint; every process must."""
  folder.mkdir(parents=True, exist_ok=True)
  name = f'part-{jax.process_index()}-of-{jax.process_count()}.npz'
  partial = folder / f'{name}.partial'
  with partial.open('wb') as file:
    np.savez(file, saved.ids, *saved.rows)
  os.replace(partial, folder / name)


def read(folder: pathlib.Path) -> list[Saved]:
  """Read the client state of all processes; ValueError if a part is missing."""
  parts = []
  for path in sorted(folder.glob('part-*.npz')):
    count = int(path.stem.rpartition('-')[2])
    # NumPy leaves a file open that it has opened itself, if it is damaged.
    with path.open('rb') as file, np.load(file) as z:
      ids, *rows = (z[name] for name in z.files)
    parts.append(Saved(ids, rows))
    if len(list(folder.glob(f'part-*-of-{count}.npz'))) != count:
      raise ValueError(f'{folder} lacks some of {count} parts.')
  return parts


def keep_only(folder: pathlib.Path, names: Iterable[int]):
  """Remove the client state of checkpoints that no longer exist."""
  current = {str(name) for name in names}
  if jax.process_index() == 0:
    for path in folder.glob('*'):
      if path.name not in current:
        shutil.rmtree(path)


def leaves(state: FedState) -> list[Any]:
  """List the arrays of per-client state in a state."""
  return comms.client_rows((state.encode, state.protocol))


def _with(state, rows):
  rest = iter(rows)
  return comms.map_per_client(lambda _: next(rest), state)
