"""Decide where a run keeps training data, client state and server state."""

from typing import NamedTuple

from fl_sketch.data import store
from fl_sketch.rounds import comms
from fl_sketch.runs import Experiment
from fl_sketch.utils.types import Tree
import jax

MAX_RESIDENT = 2**30  # bytes of data, or of client state, for 'auto'


class PlacementError(ValueError):
  """The devices cannot hold what the config places on them."""


class Placement(NamedTuple):
  """Where a run keeps its arrays between rounds."""

  # 'device': every device has a copy; 'host': that of each cohort travels.
  data: str
  client_state: str
  server: str  # 'replicated', or 'sharded': each device has a part


def decide(exp: Experiment, mesh: jax.sharding.Mesh, row: Tree) -> Placement:
  """Decide the placement of a run from its config, its sizes and its mesh.

  `row` has the shapes of one client's state. Raises PlacementError for what
  several processes, or rounds of one dispatch, cannot have.
  """
  config, processes = exp.config, jax.process_count()
  per_client = comms.nbytes(row)
  if processes > config.population:
    raise PlacementError(
      f'num_processes={processes} exceeds population={config.population}.'
    )
  if processes > 1 and config.trust == 'secure_aggregation':
    # Else masks would be shared with empty client slots.
    raise PlacementError("trust='secure_aggregation' needs num_processes=1.")
  data = _where('feed', config.feed, comms.nbytes(exp.data), mesh)
  if config.feed == 'auto' and store.is_mapped(exp.data):
    data = 'host'
  size, clients = config.population * per_client, 'device'
  if per_client:
    clients = _where('client_state', config.client_state, size, mesh)
  if clients == 'host' and config.rounds_per_dispatch > 1:
    raise PlacementError(
      f'rounds_per_dispatch={config.rounds_per_dispatch} requires client_state '
      'on the devices. Set rounds_per_dispatch=1.'
    )
  return Placement(data, clients, config.server_state)


def _where(field: str, value: str, size: int, mesh: jax.sharding.Mesh) -> str:
  """Resolve 'auto': on the devices of one process, if the copies are small."""
  if jax.process_count() > 1:
    if value == 'device':
      raise PlacementError(
        f'{field}={value!r} does not support several processes, each of which '
        f"holds its own clients only. Set {field}='auto' or 'host'."
      )
    return 'host'
  if value != 'auto':
    return value
  devices = mesh.local_devices  # a CPU's devices share one memory
  copies = len(devices) if devices[0].platform == 'cpu' else 1
  return 'device' if copies * size <= MAX_RESIDENT else 'host'


def starts(population: int, processes: int) -> list[int]:
  """Return the first client of each process's block, and the population.

  >>> starts(10, 3)
  [0, 3, 6, 10]
  """
  return [population * i // processes for i in range(processes + 1)]
