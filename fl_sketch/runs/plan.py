"""Predict memory, communication cost and time of a run."""

import contextlib
import statistics
import tempfile
import time
from typing import NamedTuple

from fl_sketch import models
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import cohort_step, mesh as mesh_lib, server_step
from fl_sketch.runs import (
  Experiment,
  experiment,
  memory as memory_lib,
  program as program_lib,
)
from fl_sketch.runs.player import Shards
from fl_sketch.utils import markdown
import jax
import jax.numpy as jnp

_BILLED = 64  # rounds whose bills are read: in some algorithms they differ


class Plan(NamedTuple):
  """Memory, communication cost and time of a run."""

  memory: memory_lib.Memory  # bytes of the run
  have: memory_lib.Available  # bytes of the machine
  wire: tuple[list[int], list[int]]  # as of `wire`
  parameters: int  # numbers of the model that clients train
  cohort: int  # clients in a round
  compiling: float  # seconds
  seconds: float | None = None  # of a round; None without a dry run

  def text(self) -> str:
    """Format the plan as a Markdown table."""
    m, have, units = self.memory, self.have, memory_lib.units
    of = lambda limit: '' if limit is None else f' of {units(limit)}'
    lines = {
      'parameters': f'{self.parameters:,}',
      f'held between rounds, on each of {m.devices} devices': units(m.held),
      'a round or an evaluation besides, on each': units(m.work),
      'each device at its peak': units(m.device_peak) + of(have.device),
      'the process at its peak': units(m.host_peak) + of(have.host),
    }
    for name, sizes in zip(('up', 'down'), self.wire, strict=True):
      each = [f'{n / 4:,g} floats ({n:,} bytes)' for n in sorted({*sizes})]
      mean = sum(sizes) / len(sizes) * self.cohort / 1e6
      lines[f'{name}, a participant and round'] = ' or '.join(each)
      lines[f'{name}, a round of {self.cohort:,}'] = f'{mean:,.4g} MB'
    lines['to compile'] = f'{self.compiling:.3g} s'
    if self.seconds is not None:
      lines['a round'] = f'{self.seconds:.3g} s'
    return markdown.table(['what', 'how much'], lines.items(), left=1)


def plan(
  exp: Experiment, mesh: jax.sharding.Mesh | None = None, dry_rounds: int = 3
) -> Plan:
  """Plan a run on the devices of a mesh, by default all; it leaves no files.

  A dry run times `dry_rounds` dispatches, unless the run exceeds the memory.
  """
  mesh = mesh or mesh_lib.cohort_mesh()
  run = program_lib.program(exp, mesh)
  begun = time.perf_counter()
  run.fn.lower(*run.args).compile()
  compiling = time.perf_counter() - begun
  memory = memory_lib.memory_of(mesh, run)
  have = memory_lib.available(mesh.local_devices[0])
  sizes = models.num_params(exp.params), exp.config.cohort
  planned = Plan(memory, have, wire(exp, mesh), *sizes, compiling)
  if dry_rounds > 0 and not memory_lib.shortfalls(memory, have):
    seconds = _seconds_of_round(exp, mesh, run, dry_rounds)
    planned = planned._replace(seconds=seconds)
  return planned


def wire(exp: Experiment, mesh: jax.sharding.Mesh) -> tuple[list, list]:
  """Return bytes that a participant sends, and receives, in the first rounds.

  No client trains for it.
  """
  cohort_fn = cohort_step(exp.make, mesh, fetch=exp.fetch, clients_per_step=1)
  server_fn = server_step(exp.make)
  count = min(exp.config.rounds, _BILLED)
  algorithm, population = exp.make(exp.hyper), exp.config.population
  state = experiment.state_shapes(algorithm, exp.params, population)
  cohort = program_lib.drawn(exp, mesh)
  secret = _known_secret(exp)
  noise = secret and secret.noise_key

  @jax.jit
  def bills():
    # Bills depend on counters in the state, not on model or data: zeros do.
    first, data, frozen = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), (state, exp.data, exp.hyper.frozen)
    )
    hyper = exp.hyper._replace(frozen=frozen)
    key = jax.random.key(exp.config.key_seed)

    def step(state, _):
      shared, new, metrics = cohort_fn(hyper, state, cohort, key, data, noise)
      new = server_fn(hyper, shared, new, key)
      return new, (metrics['uplink_bytes'], metrics['downlink_bytes'])

    return jax.lax.scan(step, first, length=count)[1]

  up, down = bills()
  return up.tolist(), down.tolist()


def _seconds_of_round(exp: Experiment, mesh, run, timed: int) -> float:
  done, seconds = 0, []
  with (
    tempfile.TemporaryDirectory() as folder,
    contextlib.closing(Shards(exp, mesh, folder, run)) as player,
  ):
    player.start(_known_secret(exp))
    for _ in range(timed + 1):
      begun = time.perf_counter()
      (cohorts,), _ = player.play(done)
      jax.block_until_ready(player.state)
      seconds.append((time.perf_counter() - begun) / len(cohorts))
      done = (done + len(cohorts)) % exp.config.rounds
  return statistics.median(seconds[1:])


def _known_secret(exp: Experiment) -> generators.Roots | None:
  """Return what stands for the secret of a private run: nothing is released."""
  return exp.guarantee and generators.known_roots(exp.config.noise_seed)
