"""Build the jitted functions of a run; decide where its arrays are kept."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.data import availability, store
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.runs import Experiment, client_state, experiment, log
from fl_sketch.utils import UserError
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

MAX_RESIDENT = 2**30  # bytes of data, or of client state, for 'auto'


class PlacementError(UserError, ValueError):
  """The devices cannot hold what the config places on them."""


class Placement(NamedTuple):
  """Where a run keeps its arrays between rounds."""

  # 'device': every device has a copy; 'host': that of each cohort travels.
  data: str
  client_state: str
  server: str  # 'replicated', or 'sharded': each device has a part


class Program(NamedTuple):
  """The jitted functions of a run, and abstract values of their arguments."""

  fn: Callable[..., Tree]  # plays a dispatch of rounds
  args: tuple[Tree, ...]  # of `fn`, in the longest dispatch
  # (hyperparameters, parameters), on the mesh -> the rest of the state before
  # the first round, each array with its final sharding.
  init: Callable[[Hyper, Params], rounds.FedState]
  # ((params, hyperparameters), test batches) -> sums of metrics.
  evaluate: Callable[..., Tree]
  test: Tree  # the test batches
  placement: Placement


def program(exp: Experiment, mesh: Mesh) -> Program:
  """Build the jitted functions of a run, for `player.Shards`.

  `args` are those of a single process: several use layouts of `cohort_feed`.
  """
  config = exp.config
  one = experiment.state_shapes(exp.make(exp.hyper), exp.params)
  where = decide(exp, mesh, client_state.leaves(one))
  data_on_device = where.data == 'device'
  on_device = where.client_state == 'device'
  population = config.population if on_device else 1
  some_absent = config.sampling != 'fixed_size' or availability.in_force(config)
  fn = rounds.run_round(
    exp.make, mesh, fetch=exp.fetch if data_on_device else None,
    shard_server=where.server == 'sharded',
    skip_absent=some_absent or jax.process_count() > 1,
    rows_of='population' if on_device else 'cohort', **exp.round_options,
  )  # fmt: skip
  cohort, spec = drawn(exp, mesh), P(comms.SHARD)
  if not data_on_device:
    fetched = jax.eval_shape(exp.fetch, exp.data, cohort.batches)
    cohort = cohort._replace(batches=fetched)
  state = first = _placed(mesh, one, where.server, population, P())
  if not on_device:
    state = _placed(mesh, one, where.server, len(cohort.ids), P(comms.SHARD))
  if config.rounds_per_dispatch > 1:
    fn, spec = rounds.scan_rounds(fn), P(None, comms.SHARD)
    longest = len(config.dispatch(0))  # later ones may end where more is due
    stack = lambda x: jax.ShapeDtypeStruct((longest, *x.shape), x.dtype)
    cohort = jax.tree.map(stack, cohort)
  cohort = _abstract(mesh, cohort, spec)
  data, noise_key = exp.data if data_on_device else None, None
  if exp.guarantee is not None:
    noise_key = generators.known_roots(config.noise_seed).noise_key
  arrays = exp.hyper, jax.random.key(0), data, noise_key
  hyper, *rest = _abstract(mesh, arrays, P())

  def init(hyper, params):
    state = rounds.init(exp.make(hyper), params, population)
    # A copy: jit would return the buffers of parameters that the state holds.
    return jax.tree.map(jnp.copy, state._replace(params=()))

  # So that no device holds more of the first state than of later ones.
  shardings = jax.tree.map(lambda x: x.sharding, first._replace(params=()))
  return Program(
    jax.jit(fn, donate_argnums=1), (hyper, state, cohort, *rest),
    init=jax.jit(init, out_shardings=shardings),
    evaluate=jax.jit(rounds.run_evaluation(log.metrics_of(exp), mesh)),
    test=_abstract(mesh, mesh_lib.pad(exp.test, mesh.size), P(comms.SHARD)),
    placement=where,
  )  # fmt: skip


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


def drawn(exp: Experiment, mesh: Mesh) -> rounds.Cohort:
  """Sample the first cohort in host memory."""
  secret = None if exp.guarantee is None else 0  # for its shapes alone
  return rounds.pad_cohort(exp.sample(0, secret), mesh.size)._replace(
    outcome=None
  )


def _placed(mesh, one, server, clients, spec):
  """Abstract state of `clients`, sharded by `spec`, from the state of one."""
  sharding = NamedSharding(mesh, spec)
  rows = lambda x: x.update(shape=(clients, *x.shape[1:]), sharding=sharding)
  state = comms.map_per_client(rows, _abstract(mesh, one, P()))
  if server == 'sharded':
    shardings = mesh_lib.shardings_over(mesh, state.server)
    put = lambda x, sharding: x.update(sharding=sharding)
    state = state._replace(server=jax.tree.map(put, state.server, shardings))
  return state


def _abstract(mesh, tree, spec):
  sharding = NamedSharding(mesh, spec)
  put = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
  return jax.tree.map(put, tree)
