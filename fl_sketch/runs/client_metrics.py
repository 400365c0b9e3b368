"""Evaluate clients on the samples that they hold out, with their own steps.

Metrics `client_...` are of the server's model, `personal_...` of what each
client makes of it by `personal_steps` on the samples that it trains on.
"""

from collections.abc import Callable
from typing import Any

from fl_sketch import rounds
from fl_sketch.rounds import comms, keys as keys_lib, mesh as mesh_lib
from fl_sketch.runs import Experiment, metrics, problem, sampler
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
import numpy as np

_MOST = 8  # batches on a device at once: more are evaluated in turn
_MODELS = 2**28  # bytes of own models on a device at once
_ROUND = 2**31 - 1  # of the keys of own steps: no round of a run


def evaluator(
  metrics_fn: Callable[..., Any], exp: Experiment, mesh: Mesh
) -> Callable[[Any], dict[str, float]]:
  """Return evaluate(model) -> metrics over clients, {} if there are none.

  The samples stay on the host and travel to the devices in chunks. `metrics_fn`
  is (model, batch) -> sums, of parameters with hyperparameters.
  """
  if exp.held_out is None or not exp.config.shows_all:
    return lambda model: {}
  before = _of_model(metrics_fn, exp, mesh)
  if exp.personalize is None:
    return before
  after = _of_own_models(metrics_fn, exp, mesh)
  return lambda model: before(model) | after(model)


def _most(exp) -> int:
  """Return the number of samples on a device at once."""
  return _MOST * problem.evaluation_size(exp.held_data)


def _of_model(metrics_fn, exp, mesh):
  """Return evaluate(model) -> metrics of it on the clients' samples."""
  part, size = exp.held_out, _most(exp) * mesh.size
  fn = jax.jit(rounds.run_client_evaluation(metrics_fn, mesh, part.population))

  def evaluate(model):
    totals: dict[str, Any] = {}
    for first in range(0, part.samples, size):
      places = np.arange(first, min(first + size, part.samples))
      arrays = sampler.fetch(exp.held_data, part.take(places))
      batch = problem.evaluation_size(arrays)
      owners = np.searchsorted(part.offsets, places, side='right') - 1
      arrays['owner'] = owners.astype(np.int32)
      batches = problem.evaluation_batches(arrays, batch)
      owners = batches.pop('owner')
      chunk = mesh_lib.pad((batches, owners), mesh.size)
      placed = mesh_lib.place(mesh, chunk, P(comms.SHARD))
      for name, sums in jax.device_get(fn(model, *placed)).items():
        totals[name] = totals.get(name, 0) + sums.astype(np.float64)
    return metrics.over_clients(totals)

  return evaluate


def _lanes(exp, mesh):
  """Return lanes: client and first sample of each, samples, lanes on a device.

  They are cut so that most clients are one lane, which is not mostly padding.
  """
  sizes = exp.held_out.sizes
  usual = int(np.ceil(np.quantile(sizes[sizes > 0], 0.9)))
  samples = min(usual, problem.evaluation_size(exp.held_data))
  parts = -(-sizes // samples)
  client = np.repeat(np.arange(len(sizes)), parts)
  rank = np.arange(len(client)) - np.repeat(np.cumsum(parts) - parts, parts)
  start = exp.held_out.offsets[client] + rank * samples
  trained = sampler.personal_batches(exp.config, exp.partition, client[:1])
  model = max(1, comms.nbytes(exp.params))
  count = min(_most(exp) // (samples + trained.size), _MODELS // model)
  count = max(1, min(count, -(-len(client) // mesh.size)))
  return client, start, samples, count


def _of_own_models(metrics_fn, exp, mesh):
  """Return evaluate(model) -> metrics of what each client makes of it."""
  clients, starts, samples, count = _lanes(exp, mesh)

  def work(model, lane):
    (params, hyper), (batches, held, client) = model, lane
    root = jax.random.key(exp.config.seed)
    keys = keys_lib.round_keys(root, jnp.int32(_ROUND))
    key = keys_lib.local_key(keys_lib.for_client(keys, client))
    personal = exp.personalize(hyper, params, batches, key)
    return metrics_fn((personal, hyper), held)

  fn = jax.jit(rounds.run_lanes(work, mesh, exp.clients_per_step))

  def evaluate(model):
    totals: dict[str, Any] = {}
    for first in range(0, len(clients), count * mesh.size):
      some = np.arange(first, first + count * mesh.size)
      client = clients.take(some, mode='clip')
      ends = exp.held_out.offsets[client + 1]
      places = starts.take(some, mode='clip')[:, None] + np.arange(samples)
      real = (places < ends[:, None]) & (some < len(clients))[:, None]
      index = exp.held_out.take(np.where(real, places, starts[0]))
      held = sampler.fetch(exp.held_data, index) | {'mask': real}
      drawn = sampler.personal_batches(exp.config, exp.partition, client)
      lane = exp.fetch(exp.data, drawn), held, client.astype(np.int32)
      placed = mesh_lib.place(mesh, lane, P(comms.SHARD))
      for name, sums in jax.device_get(fn(model, placed)).items():
        total = totals.setdefault(name, np.zeros(exp.partition.population))
        np.add.at(total, client, sums.astype(np.float64))
    return metrics.over_clients(totals, 'personal')

  return evaluate
