"""A run in shapes alone: its program, and the memory that it takes."""

from typing import Any, NamedTuple

from fl_sketch import experiment, rounds
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.training import (
  client_state,
  cohort_feed,
  memory as memory_lib,
  placement,
)
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

# What a process holds besides, once it writes checkpoints and draws curves, as
# measured: files, small programs, threads. XLA knows nothing of it.
OVERHEAD = 96 * 2**20


class Program(NamedTuple):
  """The jitted functions of a run, and what they take, without its values.

  Attributes:
    fn: a dispatch of rounds.
    args: shapes, types and places of its arguments.
    evaluate: (params, test batches) -> sums of metrics.
    test: as `args`, of the test batches.
  """

  fn: Any
  args: tuple[Any, ...]
  evaluate: Any
  test: Any


def program(
  exp: experiment.Experiment,
  mesh: jax.sharding.Mesh,
  lanes: int | None = None,
) -> Program:
  """The program of a run, for `runner.Runner`.

  What it takes is that of one process: several lay cohorts out by `feed`.

  Args:
    exp: the experiment.
    mesh: over which devices.
    lanes: of a round, if not those of the config.
  """
  c, on_device = exp.config, placement.data_on_device(exp)
  fn = rounds.run_round(
    exp.make,
    mesh,
    fetch=exp.fetch if on_device else None,
    shard_server=c.server_state == 'sharded',
    skip_absent=cohort_feed.leaves_lanes_empty(c),
    rows_of='population' if _rows_on_device(exp) else 'cohort',
    **exp.round_options,
  )
  cohort, spec = drawn(exp, mesh, lanes), P(comms.SHARD)
  if not on_device:
    fetched = jax.eval_shape(exp.fetch, exp.data, cohort.batches)
    cohort = cohort._replace(batches=fetched)
  state = _placed_state(exp, mesh, len(cohort.ids))
  if (many := c.rounds_per_dispatch) > 1:
    fn, spec = rounds.scan_rounds(fn), P(None, comms.SHARD)
    stack = lambda x: jax.ShapeDtypeStruct((many, *x.shape), x.dtype)
    cohort = jax.tree.map(stack, cohort)
  cohort = _abstract(mesh, cohort, spec)
  noise_key = None if exp.guarantee is None else jax.random.key(0)
  hyper, *rest = _abstract(
    mesh,
    (exp.hyper, jax.random.key(0), exp.data if on_device else None, noise_key),
    P(),
  )
  return Program(
    fn=jax.jit(fn, donate_argnums=1),
    args=(hyper, state, cohort, *rest),
    evaluate=jax.jit(rounds.run_evaluation(exp.metrics_fn, mesh)),
    test=_abstract(mesh, mesh_lib.pad(exp.test, mesh.size), P(comms.SHARD)),
  )


def memory_of(
  exp: experiment.Experiment,
  mesh: jax.sharding.Mesh,
  run: Program | None = None,
  like: memory_lib.Memory | None = None,
) -> memory_lib.Memory:
  """The memory of a run; compiles its round, and its evaluation.

  Args:
    exp: the experiment.
    mesh: over which devices.
    run: its program; None makes it.
    like: of the same process and evaluation, which is not compiled again.
  """
  run = program(exp, mesh) if run is None else run
  state = run.args[1]
  of_round = _besides(run.fn, *run.args)
  if like is None:
    evaluation = _besides(run.evaluate, state.params, run.test)
    process = memory_lib.resident() + OVERHEAD
  else:
    evaluation, process = like.evaluation, like.process
  return memory_lib.Memory(
    devices=len(mesh.local_devices),
    on_host=mesh.local_devices[0].platform == 'cpu',
    held=held(run),
    state=comms.nbytes(state),
    round=of_round,
    evaluation=evaluation,
    process=process,
    mapped=mapped(exp),
  )


def held(run: Program) -> dict[str, int]:
  """Bytes that lie on each device between rounds, by what they are."""
  _, state, cohort, _, data, _ = run.args
  model, rows = _share(state.params), _share(client_state.leaves(state))
  return {
    'model': model,
    "server's state": _share(state) - model - rows,
    "clients' rows": rows,
    'training data': _share(data),
    'batches': 2 * _share(cohort),  # of this round and of the next
    'test data': _share(run.test),
  }


def mapped(exp: experiment.Experiment) -> int:
  """Bytes in files that are mapped into memory: data, and clients' rows."""
  data = [x.nbytes for x in exp.data.values() if isinstance(x, np.memmap)]
  row = comms.nbytes(client_state.leaves(state_of(exp, 1)))
  rows = 0 if _rows_on_device(exp) else exp.config.population * row
  return sum(data) + rows


def drawn(
  exp: experiment.Experiment, mesh: jax.sharding.Mesh, lanes: int | None = None
) -> rounds.Cohort:
  """The first cohort in host memory, or so many lanes of it."""
  secret = None if exp.guarantee is None else 0  # nobody's data are released
  cohort = jax.tree.map(lambda x: x[:lanes], exp.sample(0, secret))
  return rounds.pad_cohort(cohort, mesh.size)._replace(outcome=None)


def state_of(exp: experiment.Experiment, population: int) -> rounds.FedState:
  """The shapes and types of the state."""
  init = lambda params: rounds.init(exp.make(exp.hyper), params, population)
  return jax.eval_shape(init, exp.params)


def _placed_state(exp, mesh, lanes):
  """The state as it lies on the devices when a round begins."""
  state = _abstract(mesh, state_of(exp, exp.config.population), P())
  if not _rows_on_device(exp):
    spread = NamedSharding(mesh, P(comms.SHARD))

    def of_cohort(x):
      shape = (lanes, *x.shape[1:])
      return jax.ShapeDtypeStruct(shape, x.dtype, sharding=spread)

    state = comms.map_per_client(of_cohort, state)
  if exp.config.server_state == 'sharded':
    parts = mesh_lib.parts(mesh, state.server)
    put = lambda x, part: x.update(sharding=part)
    state = state._replace(server=jax.tree.map(put, state.server, parts))
  return state


def _rows_on_device(exp) -> bool:
  row = client_state.leaves(state_of(exp, 1))
  return placement.rows_on_device(exp.config, row)


def _besides(fn, *args) -> int:
  """Bytes on a device that a program needs besides its arguments."""
  found = fn.lower(*args).compile().memory_analysis()
  new = found.output_size_in_bytes - found.alias_size_in_bytes
  return new + found.temp_size_in_bytes


def _abstract(mesh, tree, spec):
  sharding = NamedSharding(mesh, spec)
  put = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
  return jax.tree.map(put, tree)


def _share(tree) -> int:
  """Bytes of the part of a placed tree that lies on one device."""

  def part(x):
    return jax.ShapeDtypeStruct(x.sharding.shard_shape(x.shape), x.dtype)

  return comms.nbytes(jax.tree.map(part, tree))
