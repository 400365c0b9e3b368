"""Where training data and clients' rows lie: on the devices, or on hosts."""

from fl_sketch import experiment
from fl_sketch.data import store
from fl_sketch.experiment import config as config_lib
from fl_sketch.rounds import comms
import jax

MAX_RESIDENT = 2**30  # bytes of data, or of rows, that devices may hold


class PlacementError(ValueError):
  """What the config wants on the devices cannot lie there."""


def starts(population: int, processes: int) -> list[int]:
  """The first client of every process, and the number of clients.

  >>> starts(10, 3)
  [0, 3, 6, 10]
  """
  return [population * i // processes for i in range(processes + 1)]


def check_processes(c: config_lib.Config):
  """Refuses what several processes cannot do.

  Raises:
    PlacementError: a process would have no client; or clients would share masks
      with padding, of which there is more than on one process.
  """
  processes = jax.process_count()
  if processes > c.population:
    raise PlacementError(f'Expected {processes=} <= {c.population=}.')
  if processes > 1 and c.trust == 'secure_aggregation':
    raise PlacementError(
      "Expected trust='secure_aggregation' on one process: neighbours are "
      'drawn among lanes, of which several processes leave many empty.'
    )


def data_on_device(exp: experiment.Experiment) -> bool:
  """Whether the training data is copied to every device, or fed from the host.

  Raises:
    PlacementError: the config wants them on those of several processes.
  """
  feed = exp.config.feed
  if feed != 'host' and jax.process_count() == 1:
    copies = _copies() * comms.nbytes(exp.data)
    fits = copies <= MAX_RESIDENT and not store.is_mapped(exp.data)
    return feed == 'device' or fits
  return _refuse('feed', feed)


def rows_on_device(c: config_lib.Config, row: comms.Tree) -> bool:
  """Whether all clients' rows are copied to every device.

  Args:
    c: the config.
    row: what one client keeps.

  Raises:
    PlacementError: the config wants them on those of several processes, or
      several rounds in a dispatch, between which rows cannot travel.
  """
  size, where = comms.nbytes(row), c.client_state
  if not size:
    return True
  if where != 'host' and jax.process_count() == 1:
    fits = _copies() * c.population * size <= MAX_RESIDENT
    if where == 'device' or fits:
      return True
  if c.rounds_per_dispatch > 1:
    raise PlacementError(
      f'Expected rounds_per_dispatch={c.rounds_per_dispatch} to be 1: '
      "clients' rows, which stay on the host, travel between rounds."
    )
  return _refuse('client_state', where)


def _copies():
  """Of what every device holds, in one memory."""
  return jax.local_device_count() if jax.default_backend() == 'cpu' else 1


def _refuse(name, value):
  """False, where it is not asked for."""
  if value == 'device':
    raise PlacementError(
      f"Expected {name}={value!r} to be 'auto' or 'host' with several "
      'processes: each holds what belongs to its own clients alone.'
    )
  return False
