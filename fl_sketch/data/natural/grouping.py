"""Group samples by client that come in any order, in files on disk."""

from collections.abc import Iterator
import pathlib

from fl_sketch.data import store
from fl_sketch.data.sources import Arrays
from fl_sketch.data.store import Chunk, Columns
import numpy as np

_ROWS = 2**15  # of a chunk, about
_AT_ONCE = 2**10  # rows in memory before they are written


class Samples:
  """Samples of one split as they come; `numbers` of all clients, by name."""

  def __init__(self, folder: pathlib.Path, numbers: dict[str | None, int]):
    self._folder, self._numbers = folder, numbers
    self._columns: Columns | None = None
    self._pending: list[tuple[str | None, Arrays]] = []
    self._rows = 0  # pending

  def add(self, client: str | None, arrays: Arrays):
    """Add samples of a client, or of nobody: leaves [samples, ...]."""
    number = self._numbers.setdefault(client, len(self._numbers))
    size = len(next(iter(arrays.values())))
    arrays = {'owner': np.full(size, number, np.int32), **arrays}
    if self._columns is None:
      self._folder.mkdir()
      self._columns = Columns(self._folder, '', arrays)
    kinds, like = map(store.kinds, (arrays, self._columns.like))
    if kinds != like or {len(x) for x in arrays.values()} != {size}:
      raise ValueError(
        f'Client {client!r} needs arrays of equal lengths, like {like}.'
      )
    self._pending.append((client, arrays))
    self._rows += size
    if self._rows >= _AT_ONCE:
      self._flush()

  def _flush(self):
    if self._columns is not None and self._pending:
      clients, parts = zip(*self._pending, strict=True)
      sizes = np.array([len(arrays['owner']) for arrays in parts])
      arrays = {k: np.concatenate([x[k] for x in parts]) for k in parts[0]}
      self._columns.append(arrays, sizes, None, clients)
      self._pending, self._rows = [], 0

  def finish(self) -> 'Grouped | None':
    """Return the samples client by client, or None without any."""
    if self._columns is None:
      return None
    self._flush()
    self._columns.write_headers()
    paths = self._columns.paths.items()
    arrays = {name: np.load(path, mmap_mode='r') for name, path in paths}
    return Grouped(arrays.pop('owner'), arrays, [*self._numbers])


class Grouped:
  """Samples of one split, client by client; memory-mapped."""

  def __init__(self, owner: np.ndarray, arrays: Arrays, names: list):
    self.arrays, self._names = arrays, names
    self.sizes = np.bincount(owner, minlength=len(names))  # of each client
    self._ends = np.cumsum(self.sizes)
    # Most files have one client after another: nothing is to be sorted.
    ordered = (owner[1:] >= owner[:-1]).all()
    self._order = None if ordered else np.argsort(owner, kind='stable')

  def take(self, clients: np.ndarray) -> Arrays:
    """Return the samples of these clients, leaves [sum of sizes, ...]."""
    ends, sizes = self._ends[clients], self.sizes[clients]
    places = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
    if self._order is not None:
      places = self._order[places]
    return {name: np.asarray(x[places]) for name, x in self.arrays.items()}

  def chunks(self, held_out: 'Grouped | None') -> Iterator[Chunk]:
    """Yield chunks of all clients that have samples here."""
    trained = np.flatnonzero(self.sizes)
    chunk = self._ends[trained] // _ROWS
    for some in np.split(trained, np.flatnonzero(np.diff(chunk)) + 1):
      held = None, None
      if held_out is not None:
        held = held_out.sizes[some], held_out.take(some)
      ids = [self._names[i] for i in some]
      yield Chunk(self.sizes[some], self.take(some), *held, ids)
