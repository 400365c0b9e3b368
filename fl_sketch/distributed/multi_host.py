"""The processes of a training loop, and the batches of their workers."""

from collections.abc import Callable
import math
import os
import sys
from typing import Any

from fl_sketch.rounds import axes as axes_lib, peers
from fl_sketch.utils import checks, progress
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import NamedSharding, PartitionSpec as P


def start(
  coordinator: str | None = None, num_processes: int | None = None,
  process_id: int | None = None, *, workers: int | None = None,
):  # fmt: skip
  """Join the processes of a run; call it before any other use of JAX.

  A single process needs no argument, nor do processes that Slurm, Open MPI (5:
  on one host) or Kubernetes has started: None is the launcher's value. Those
  started by hand need `num_processes`, `process_id`, from 0, and the
  coordinator, HOST:PORT of process 0 or, by default, a port of localhost. If
  one of several processes fails it ends at once, and the others end with one
  line. The `workers` are the devices of all processes together: CPUs make as
  many. None leaves the devices as they are.
  """
  process = peers.resolve(coordinator, num_processes, process_id)
  count = process[1]
  if workers is not None:
    checks.count('workers', workers)
    jax.config.update('jax_num_cpu_devices', workers // (count or workers))
  if count != 1:
    peers.connect(*process)
    sys.excepthook = _leave
  if workers is None:
    return
  devices = jax.device_count()  # one process may leave some without work
  if devices != workers and (devices < workers or count != 1):
    raise ValueError(f'{workers=} differs from {devices} devices; set that.')


def _leave(kind, error, trace):
  """End one of several processes; JAX would wait for the others to end."""
  of_jax = peers.PeerLostError, jax.errors.JaxRuntimeError, ValueError
  if isinstance(error, of_jax) and peers.is_peer_lost(error):
    progress.note(peers.GONE)
  else:
    sys.__excepthook__(kind, error, trace)
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(1)


def batches(
  mesh: jax.sharding.Mesh, draw: Callable[[int], Tree],
  axis: axes_lib.Axis | None = None,
) -> Tree:  # fmt: skip
  """Draw a batch for each worker, in the processes that have its devices.

  The workers lie along all axes of the mesh, or those given, and are numbered
  in their order; `draw` is worker -> tree of arrays [n, ...], of the same
  shapes for all. Returns arrays [workers * n, ...], split over these axes. Of
  `draw` that depends on seed, step and worker alone, any number of processes
  have the same batches.

  >>> mesh = jax.make_mesh((2,), ('data',))
  >>> batches(mesh, lambda worker: jax.numpy.full(3, worker)).tolist()
  [0, 0, 0, 1, 1, 1]
  """
  axes = mesh.axis_names if axis is None else axes_lib.names(axis)
  size = math.prod(mesh.shape[a] for a in axes)
  sharding = NamedSharding(mesh, P(axes))
  places: Any = sharding.addressable_devices_indices_map((size,))
  worker = {at: part[0].start or 0 for at, part in places.items()}
  drawn = {i: draw(i) for i in {*worker.values()}}

  def put(*rows):
    shape = size * len(rows[0]), *rows[0].shape[1:]
    parts = [jax.device_put(x, at) for at, x in zip(worker, rows, strict=True)]
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)

  return jax.tree.map(put, *(drawn[i] for i in worker.values()))
