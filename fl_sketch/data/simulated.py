"""Simulates cross-device populations of any size, labelled by a linear teacher.

Pixels are noise plus a shift that each client draws; the label is the largest
of ten scores that are linear in the pixels plus noise. All numbers are integers
and every sum is exact, so that every machine makes the same bytes.
"""

from collections.abc import Iterator
import contextlib
import logging
import shutil

from fl_sketch.data import sources, store
from fl_sketch.data.sources import PathLike
from fl_sketch.utils import checks, seeding
import numpy as np

FEATURES, CLASSES, MEAN_SIZE = 64, 10, 20
_LOG = logging.getLogger(__name__)
_VERSION = 1  # of the bytes; in the name of the folder
_CLIENTS = 1024  # in a chunk
_TEST = 10_000
_CENTRE = 127  # mean of a pixel: (191 + 63) / 2
_NOISE = 10_000  # of a score; the linear part has deviation about 34,000


def load(population: int, cache_dir: PathLike | None = None) -> store.Store:
  """Opens the memory-mapped store of a population; writes it at first use.

  A million clients take 1.4 GB. The data of client i depend on i alone. For
  `cache_dir` see `sources.load`.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as cache:
  ...   load(3, cache).train['x'].shape[1:]
  (64,)
  """
  cache = sources.folder(cache_dir, 'FL_SKETCH_CACHE', '~/.cache/fl_sketch')
  folder = cache / f'simulated-{_VERSION}-{population}'
  if folder.exists():
    try:
      return store.open(folder)
    except sources.DataError as error:
      _LOG.warning('Making the damaged store again: %s', error)
      shutil.rmtree(folder)
  _LOG.info('Making %d clients in %s, once.', population, folder)
  with contextlib.suppress(FileExistsError):  # another process has written it
    write(folder, population)
  return store.open(folder)


def write(folder: PathLike, population: int, seed: int = 0):
  """Writes the store of a population to a new folder.

  Its clients hold 1 to 39 samples each, 20 on average.
  """
  checks.at_least('population', population, 1)
  _, test = _chunk(seed, 'simulated test', 0)
  test = {name: x[:_TEST] for name, x in test.items()}
  store.write(folder, _chunks(seed, population), test, CLASSES, population)


def teacher(seed: int) -> np.ndarray:
  """Draws the teacher's weights, integers in f32[FEATURES, CLASSES]."""
  rng = seeding.generator(seed, 'simulated teacher')
  return rng.integers(-127, 128, (FEATURES, CLASSES)).astype(np.float32)


def _chunks(seed, population) -> Iterator[tuple[np.ndarray, sources.Arrays]]:
  for first in range(0, population, _CLIENTS):
    sizes, arrays = _chunk(seed, 'simulated clients', first // _CLIENTS)
    # Cut after the draw: no client's samples depend on the population.
    sizes = sizes[: population - first]
    yield sizes, {name: x[: sizes.sum()] for name, x in arrays.items()}


def _chunk(seed, tag, number) -> tuple[np.ndarray, sources.Arrays]:
  rng = seeding.generator(seed, tag, number)
  sizes = rng.integers(1, 2 * MEAN_SIZE, _CLIENTS)
  shift = rng.integers(64, size=(_CLIENTS, FEATURES), dtype=np.uint8)
  x = rng.integers(192, size=(sizes.sum(), FEATURES), dtype=np.uint8)
  x += np.repeat(shift, sizes, axis=0)
  # Sums of integers below 2^24 are exact in float32, in any order.
  scores = (x.astype(np.float32) - _CENTRE) @ teacher(seed)
  noise = rng.integers(-_NOISE, _NOISE + 1, scores.shape, np.int32)
  labels = np.argmax(scores + noise, axis=1)
  return sizes, {'x': x, 'y': labels.astype(np.int32)}
