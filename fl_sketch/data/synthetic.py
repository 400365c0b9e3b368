"""Draw synthetic problems: quadratics, and populations of any size.

Quadratics are those of Das et al., arXiv:2106.07094, section 5.3. Pixels of
simulated clients are noise plus a client's shift; the label is the largest of
ten noisy scores, linear in the pixels. All sums are exact: every machine makes
the same bytes.
"""

from collections.abc import Iterator
import logging
from typing import NamedTuple

from fl_sketch.data import sources, store
from fl_sketch.data.sources import PathLike
from fl_sketch.utils import seeding
import numpy as np

FEATURES, CLASSES, MEAN_SIZE = 64, 10, 20
_LOG = logging.getLogger(__name__)
_VERSION = 1  # of the bytes; in the name of the folder
_CLIENTS = 1024  # in a chunk
_TEST = 10_000
_CENTRE = 127  # mean of a pixel: (191 + 63) / 2
_NOISE = 10_000  # of a score; the linear part has deviation about 34,000


class Quadratics(NamedTuple):
  r"""Clients with the losses :math:`f_i(w) = \|A_i^T (w - w_i^*)\|^2 / 2`.

  Client i has row i of 'factor', f32[population, dimension, rank], the A_i, and
  of 'optimum', f32[population, dimension], the w_i*. The minimiser of the mean
  loss solves (sum_i A_i A_i^T) w = sum_i A_i A_i^T w_i* at least norm.
  """

  data: dict[str, np.ndarray]
  w_star: np.ndarray  # f32[dimension], the minimiser

  def value(self, w: np.ndarray) -> float:
    """Return the mean over the clients of f_i(w), in float64."""
    factor = self.data['factor'].astype(np.float64)
    residual = np.einsum('ndr,nd->nr', factor, w - self.data['optimum'])
    return float(0.5 * np.mean(np.sum(residual**2, axis=1)))

  def start(self, seed: int, scale: float = 1.0) -> np.ndarray:
    """Draw w_star + scale * z, z uniform on [0, 1]^d; Das: scale 1 and 1/5."""
    z = seeding.generator(seed, 'quadratics start').random(len(self.w_star))
    return (self.w_star + scale * z).astype(np.float32)


def quadratics(
  seed: int, population: int = 100, dimension: int = 200, rank: int = 20
) -> Quadratics:
  r"""Draw :math:`w_i^* \sim N(0, I)` and :math:`A_i` from N(0, 1/rank^2).

  >>> problem = quadratics(seed=0, population=4, dimension=6, rank=3)
  >>> problem.value(problem.w_star) < problem.value(np.zeros(6))
  True
  """
  rng = seeding.generator(seed, 'quadratics')
  factor = rng.standard_normal((population, dimension, rank), np.float32) / rank
  optimum = rng.standard_normal((population, dimension), np.float32)
  wide = factor.astype(np.float64)
  normal = np.einsum('ndr,ner->de', wide, wide, optimize=True)
  right = np.einsum('ndr,nr->d', wide, np.einsum('ndr,nd->nr', wide, optimum))
  w_star = np.linalg.lstsq(normal, right)[0].astype(np.float32)
  return Quadratics({'factor': factor, 'optimum': optimum}, w_star)


def simulated(population: int) -> store.Store:
  """Open the memory-mapped store of a population; write it at first use.

  A million clients take 1.4 GB. The data of client i depend on i alone.
  """
  folder = sources.cache_folder() / f'simulated-{_VERSION}-{population}'
  if not folder.exists():
    _LOG.info('Making %d clients in %s, once.', population, folder)
    try:
      write_simulated(folder, population)
    except OSError:
      if not folder.exists():  # another process may have written it meanwhile
        raise
  return store.open(folder)


def write_simulated(folder: PathLike, population: int):
  """Write a store of clients with 1 to 39 samples each, 20 on average."""
  _, test = _chunk('simulated test', 0)
  test = {name: x[:_TEST] for name, x in test.items()}
  store.write(folder, _chunks(population), test, CLASSES)


def teacher() -> np.ndarray:
  """Draw the teacher's weights, integers in f32[FEATURES, CLASSES]."""
  rng = seeding.generator(0, 'simulated teacher')
  return rng.integers(-127, 128, (FEATURES, CLASSES)).astype(np.float32)


def _chunks(population) -> Iterator[tuple[np.ndarray, sources.Arrays]]:
  for first in range(0, population, _CLIENTS):
    sizes, arrays = _chunk('simulated clients', first // _CLIENTS)
    # Cut after the draw: no client's samples depend on the population.
    sizes = sizes[: population - first]
    yield sizes, {name: x[: sizes.sum()] for name, x in arrays.items()}


def _chunk(tag, number) -> tuple[np.ndarray, sources.Arrays]:
  rng = seeding.generator(0, tag, number)
  sizes = rng.integers(1, 2 * MEAN_SIZE, _CLIENTS)
  shift = rng.integers(64, size=(_CLIENTS, FEATURES), dtype=np.uint8)
  x = rng.integers(192, size=(sizes.sum(), FEATURES), dtype=np.uint8)
  x += np.repeat(shift, sizes, axis=0)
  # Sums of integers below 2^24 are exact in float32, in any order.
  scores = (x.astype(np.float32) - _CENTRE) @ teacher()
  noise = rng.integers(-_NOISE, _NOISE + 1, scores.shape, np.int32)
  labels = np.argmax(scores + noise, axis=1)
  return sizes, {'x': x, 'y': labels.astype(np.int32)}
