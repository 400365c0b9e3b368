"""Build a run's jitted functions, abstractly, and estimate its memory."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.data import availability
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import Experiment, client_metrics, client_state, log, parts
from fl_sketch.runs.memory import Memory, resident
from fl_sketch.runs.placement import Placement, decide
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import numpy as np

# Measured bytes of files, small programs and threads, which XLA does not count.
OVERHEAD = 96 * 2**20


class Program(NamedTuple):
  """The jitted functions of a run, and abstract values of their arguments."""

  fn: Callable[..., Tree]  # plays a dispatch of rounds
  args: tuple[Tree, ...]  # of `fn`, in the longest dispatch
  # Parameters on the mesh -> the rest of the state before the first round, each
  # array with its final sharding.
  init: Callable[[Params], rounds.FedState]
  # ((params, hyperparameters), test batches) -> sums of metrics.
  evaluate: Callable[..., Tree]
  test: Tree  # the test batches
  placement: Placement
  row: list[jax.ShapeDtypeStruct]  # shapes of one client's state


def program(exp: Experiment, mesh: Mesh) -> Program:
  """Build the jitted functions of a run, for `runner.Runner`.

  `args` are those of a single process: several use layouts of `cohort_feed`.
  """
  config, one = exp.config, abstract_state(exp, 1)
  row = client_state.leaves(one)
  where = decide(exp, mesh, row)
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

  def init(params):
    state = rounds.init(exp.make(exp.hyper), params, population)
    # A copy: jit would return the buffers of parameters that the state holds.
    return jax.tree.map(jnp.copy, state._replace(params=()))

  # So that no device holds more of the first state than of later ones.
  shardings = jax.tree.map(lambda x: x.sharding, first._replace(params=()))
  return Program(
    jax.jit(fn, donate_argnums=1), (hyper, state, cohort, *rest),
    init=jax.jit(init, out_shardings=shardings),
    evaluate=jax.jit(rounds.run_evaluation(log.metrics_of(exp), mesh)),
    test=_abstract(mesh, mesh_lib.pad(exp.test, mesh.size), P(comms.SHARD)),
    placement=where, row=row,
  )  # fmt: skip


def memory_of(exp: Experiment, mesh: Mesh, run: Program) -> Memory:
  """Estimate the memory of a run; compiles its round and its evaluation."""
  hyper, state, *_ = run.args
  process = resident() + OVERHEAD  # before anything is compiled
  return Memory(
    len(mesh.local_devices), on_host=mesh.local_devices[0].platform == 'cpu',
    held=device_bytes(run) | client_metrics.device_bytes(exp, mesh),
    state=comms.nbytes(state), round=_workspace(run.fn, *run.args),
    evaluation=_workspace(run.evaluate, (state.params, hyper), run.test),
    process=process, mapped=mapped(exp, run),
  )  # fmt: skip


def device_bytes(run: Program) -> dict[str, int]:
  """Return the bytes on each device between rounds, by kind of array."""
  hyper, state, cohort, _, data, _ = run.args
  model, rows = _share(state.params), _share(client_state.leaves(state))
  return {
    'model': model,
    'frozen parameters': _share(hyper.frozen),
    "server's state": _share(state) - model - rows,
    'client state': rows,
    'training data': _share(data),
    'batches': 2 * _share(cohort),  # of this round and of the next
    'test data': _share(run.test),
  }


def mapped(exp: Experiment, run: Program) -> int:
  """Count the bytes in memory-mapped files: training data and client state."""
  data = [x.nbytes for x in exp.data.values() if isinstance(x, np.memmap)]
  on_host = run.placement.client_state == 'host'
  return sum(data) + on_host * exp.config.population * comms.nbytes(run.row)


def drawn(exp: Experiment, mesh: Mesh) -> rounds.Cohort:
  """Sample the first cohort in host memory."""
  secret = None if exp.guarantee is None else 0  # for its shapes alone
  return rounds.pad_cohort(exp.sample(0, secret), mesh.size)._replace(
    outcome=None
  )


def abstract_state(exp: Experiment, population: int) -> rounds.FedState:
  """Compute shapes and types of the state, without allocating it."""
  return parts.state_shapes(exp.make(exp.hyper), exp.params, population)


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


def _workspace(fn, *args) -> int:
  """Bytes on a device that a program needs besides its arguments."""
  used = fn.lower(*args).compile().memory_analysis()
  new = used.output_size_in_bytes - used.alias_size_in_bytes
  return new + used.temp_size_in_bytes


def _abstract(mesh, tree, spec):
  sharding = NamedSharding(mesh, spec)
  put = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
  return jax.tree.map(put, tree)


def _share(tree) -> int:
  """Bytes that a sharded tree takes on one device."""
  shape = lambda x: x.sharding.shard_shape(x.shape)
  part = lambda x: jax.ShapeDtypeStruct(shape(x), x.dtype)
  return comms.nbytes(jax.tree.map(part, tree))
