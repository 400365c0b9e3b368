"""Evaluates clients on the samples that they hold out (`client_holdout`)."""

from collections.abc import Callable
from typing import Any

from fl_sketch import experiment, rounds
from fl_sketch.experiment import privacy_checks, problem
from fl_sketch.reporting import client_metrics
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
from jax.sharding import PartitionSpec as P
import numpy as np

# Samples on a device at once: more are evaluated in turn.
_MOST = 8 * problem.EVAL_BATCH


def evaluator(
  exp: experiment.Experiment, mesh: jax.sharding.Mesh
) -> Callable[..., dict[str, float]]:
  """Builds evaluate(params, hyper) -> metrics over clients.

  They are {} if none holds out data, or if `public_metrics` leaves them out.

  The samples stay in host memory, or in the files that are mapped there, and
  travel to the devices in chunks.

  Args:
    exp: the experiment.
    mesh: the devices, over which samples are spread.
  """
  if (held := _held_out(exp)) is None:
    return lambda params, hyper: {}
  metrics_fn, size = exp.metrics_of, _MOST * mesh.size
  fn = jax.jit(rounds.run_client_evaluation(metrics_fn, mesh, held.population))

  def evaluate(params, hyper):
    model = params, hyper
    totals: dict[str, Any] = {}
    for first in range(0, held.samples, size):
      chunk = range(first, min(first + size, held.samples))
      placed = mesh_lib.place(mesh, _chunk(exp, chunk, mesh), P(comms.SHARD))
      for name, sums in jax.device_get(fn(model, *placed)).items():
        totals[name] = totals.get(name, 0) + sums.astype(np.float64)
    return client_metrics.over_clients(totals)

  return evaluate


def held(exp: experiment.Experiment, mesh: jax.sharding.Mesh) -> dict[str, int]:
  """Counts the bytes on each device at an evaluation, as `program.held`."""
  if (part := _held_out(exp)) is None:
    return {}
  samples = min(_MOST, -(-part.samples // mesh.size))
  each = sum(x.nbytes // len(x) for x in exp.data.values())
  return {'held-out data': samples * each}


def _held_out(exp):
  """What clients evaluate on, if their metrics are shown."""
  return exp.held_out if privacy_checks.shows_all(exp.config) else None


def _chunk(exp, chunk, mesh):
  """Batches of the held-out samples at these places, and their owners."""
  places = np.arange(chunk.start, chunk.stop)
  index = exp.held_out.take(places)
  owners = np.searchsorted(exp.held_out.offsets, places, side='right') - 1
  arrays = {k: np.asarray(x).take(index, axis=0) for k, x in exp.data.items()}
  batches = problem.evaluation_batches(arrays)
  owners = problem.evaluation_batches({'owner': owners.astype(np.int32)})
  return mesh_lib.pad((batches, owners['owner']), mesh.size)
