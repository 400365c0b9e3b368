"""Read the arrays that a site holds, for the model of a config."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any
import zipfile
import zlib

from fl_sketch import models
from fl_sketch.data import own_arrays, partitions
from fl_sketch.data.sources import DataError
from fl_sketch.models import loss_checks, losses
from fl_sketch.runs import problem as problem_lib
from fl_sketch.runs.config import Config, checked
from fl_sketch.utils import plugins
import jax
import numpy as np

Arrays = Mapping[str, np.ndarray]
_FILES = 'train', 'test'
_DAMAGE = OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error


def read(where: str, c: Config, client: int) -> tuple[Any, Arrays | None]:
  """Read the training and test data of a site; the latter may be None.

  `where` is a folder of train.npz and possibly test.npz; or MODULE:FUNCTION or
  FILE.py:FUNCTION, whose function makes the training data of (c, client).
  Raises DataError if these are missing, cannot be read, or raise an error.
  """
  module, colon, function = where.rpartition(':')
  if colon and not os.path.isdir(where):
    make = getattr(plugins.load(module, 'data'), function, None)
    if make is None:
      raise DataError(f'data={where}: {module} has no function {function}.')
    try:
      return make(c, client), None
    except Exception as e:  # whatever a user's function raises
      raise DataError(
        f'data={where} raised {e!r}; --verbosity=1 shows where.'
      ) from e
  arrays = []
  for path in (pathlib.Path(where, f'{name}.npz') for name in _FILES):
    try:
      with path.open('rb') as file, np.load(file) as z:
        arrays.append({**z})
    except FileNotFoundError as e:
      if not arrays:
        raise DataError(f'data={where} lacks {path.name}.') from e
      arrays.append(None)
    except _DAMAGE as e:
      raise DataError(f'{path} cannot be read: {e}') from e
  return tuple(arrays)


def of_site(
  c: Config, *, client: int, where: str, data_dir: str | None = None
) -> problem_lib.Problem:
  """Build the problem of a config with a site's data: `read`, `problem`."""
  options = {'where': where, 'data_dir': data_dir}
  return problem(c, client, *read(where, c, client), **options)


@checked()
def problem(
  c: Config,
  client: int,
  arrays: Any,
  test: Any = None,
  *,
  where: str = 'own data',
  data_dir: str | None = None,
) -> problem_lib.Problem:
  """Build the problem of a config with the data of one client alone.

  The partition gives it all arrays, in their order, and other clients none: it
  draws the batches of a simulation in which it holds the same. The number of
  classes, the scale of pixels and, without `test`, the test set are those of
  the config's dataset.

  The client, a number in the population, trains on `arrays`, as of
  `own_arrays.read`, and evaluates on `test`, which it holds out. Messages call
  the arrays `where`. Raises ConfigError if client or arrays do not suit the
  config, and DataError if its dataset is missing.
  """
  if not 0 <= client < c.population:
    raise ValueError(f'{client=} must be 0 to {c.population - 1}.')
  loaded = problem_lib.load(c, data_dir)
  train = _checked(c, loaded, where, arrays)
  partition = _all_of(train, client, c.population)
  if c.batch_order == 'poisson':  # whose laws are of clients with samples
    ids = np.arange(partition.samples)
    ends = np.arange(c.population + 1) * len(ids)
    partition = partitions.Partition(np.tile(ids, c.population), ends)
  if c.samples_per_client is not None:
    partition = partitions.cap(partition, c.samples_per_client)
  labels = None if loaded.labels is None else train['y']
  loaded = loaded._replace(
    data=train, labels=labels, partition=partition, held_out=None
  )
  if test is None:
    return loaded
  test = _checked(c, loaded, f'test of {where}', test)
  return loaded._replace(
    test=problem_lib.evaluation_batches(test), test_of_clients=True,
    held_out=(_all_of(test, client, c.population), test),
  )  # fmt: skip


def _checked(c, loaded, name, arrays) -> dict[str, np.ndarray]:
  """Read arrays, and check them beside the test set of the config's dataset."""
  like = {k: x[0] for k, x in loaded.test.items() if k != 'mask'}
  arrays = own_arrays.read(name, arrays)
  own_arrays.check({name: arrays}, like)
  arrays = {k: own_arrays.narrow(arrays[k]) for k in like}
  samples = len(next(iter(arrays.values())))
  partition = partitions.Partition(None, np.array([0, samples]), [name])
  own_arrays.check_finite(arrays, partition)
  if loaded.model is not None:  # else it has only a loss
    sample = losses.inputs({k: x[:1] for k, x in arrays.items()})
    apply = models.as_model(loaded.model).apply
    outputs = jax.eval_shape(apply, loaded.params, sample, None)
    loss_checks.check(c.loss, outputs, arrays)
  return arrays


def _all_of(arrays, client, population) -> partitions.Partition:
  ends = np.arange(population + 1) > client
  return partitions.Partition(None, ends * len(next(iter(arrays.values()))))
