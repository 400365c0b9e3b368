"""Evaluate models: sums of metrics over all samples, or for each client."""

from collections.abc import Callable

from fl_sketch.rounds import client_loop, comms
from fl_sketch.utils.types import Batch, Params, Tree
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

Sums = dict[str, jax.Array]  # f32[] each
MetricsFn = Callable[[Params, Batch], Sums]


def run_evaluation(
  metrics_fn: MetricsFn, mesh: jax.sharding.Mesh
) -> Callable[[Params, Batch], Sums]:
  """Build evaluate(params, batches) -> sums of metrics over all batches.

  Batches, leaves [batches, batch, ...], are split over the shards; each device
  works on one batch at a time.
  """

  def program(params, batches):
    one = lambda batch: metrics_fn(params, batch)
    sums = client_loop.map_clients(one, batches, clients_per_step=1)
    return jax.tree.map(comms.Shards().total, sums)

  specs = P(), P(comms.SHARD)
  return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=P())


def run_client_evaluation(
  metrics_fn: MetricsFn, mesh: jax.sharding.Mesh, clients: int
) -> Callable[[Params, Batch, jax.Array], Sums]:
  """Build evaluate(params, batches, owners) -> f32[clients] of each metric.

  Each sample is a batch of its own, with its mask; `owners` int32[batches,
  batch] are the clients of the samples.
  """

  def program(params, batches, owners):
    alone = lambda sample: jax.tree.map(lambda x: x[None], sample)
    of_samples = jax.vmap(lambda sample: metrics_fn(params, alone(sample)))
    values = client_loop.map_clients(of_samples, batches, clients_per_step=1)
    owner = owners.reshape(-1)
    total = lambda x: jax.ops.segment_sum(x.reshape(-1), owner, clients)
    return comms.Shards().sum(jax.tree.map(total, values))

  specs = P(), P(comms.SHARD), P(comms.SHARD)
  return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=P())


def run_lanes(
  fn: Callable[[Params, Tree], Tree], mesh: jax.sharding.Mesh,
  clients_per_step: int | None,
) -> Callable[[Params, Tree], Tree]:  # fmt: skip
  """Build evaluate(params, lanes) -> fn(params, lane) of every lane.

  The lanes, leaves [lanes, ...], are split over the shards; every device gets
  all results, [lanes, ...] too. `clients_per_step` is as of `run_round`.
  """

  def program(params, lanes):
    one = lambda lane: fn(params, lane)
    results = client_loop.map_clients(one, lanes, clients_per_step)
    comm = comms.Shards()
    place, size = comm.slots(len(jax.tree.leaves(lanes)[0]))
    whole = lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype).at[place].set(x)
    return comm.sum(jax.tree.map(whole, results))

  specs = P(), P(comms.SHARD)
  return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=P())
