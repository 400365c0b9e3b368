"""Compile and run the points of a sweep that differ only in arrays."""

import dataclasses
import math
import time
from typing import Any, NamedTuple

from fl_sketch import algorithms, rounds
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import log as log_lib, loop
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.metrics import Row
from fl_sketch.runs.program import program
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np

# Bytes of a device that does not report its memory; the share for points.
DEVICE_MEMORY = 8 * 2**30
MEMORY_SHARE = 0.7


class Result(NamedTuple):
  """The result of one point."""

  rows: list[Row]  # of its rounds, up to the last finite one
  diverged: bool  # whether a round was not finite
  seconds: float  # this point's share of the time of its chunk
  about: dict[str, Any]  # fields of its summary besides metrics
  params: Params  # the model after its last round


class SweepProgram:
  """The compiled rounds of points that differ in seeds and hyperparameters.

  `exp` is of any point, `configs` are of all.
  """

  def __init__(self, exp: Experiment, mesh: jax.sharding.Mesh, configs):
    # Points keep the state of all clients on the devices.
    on_device = dataclasses.replace(exp.config, client_state='device')
    self._run = program(exp._replace(config=on_device), mesh)
    if self._run.placement.data == 'host':
      raise ValueError(
        f"feed={exp.config.feed!r} does not support sweeps; set feed='device'."
      )
    config = exp.config
    self.config, self.mesh = config, mesh
    # Over all points, not those of a chunk: chunks then share one program.
    self._private = exp.guarantee is not None
    # A private point draws cohorts from its secret, unless by noise_seed.
    self._one_seed = len({(c.seed, c.noise_seed) for c in configs}) == 1
    self._one_seed &= not self._private or config.noise_seed is not None
    self._one_key = len({c.key_seed for c in configs}) == 1
    # Frozen parameters depend on these; those of one model are not copied.
    one_model = len({(c.seed, repr(c.model_options)) for c in configs}) == 1
    axes: Any = dict.fromkeys(algorithms.Hyper._fields, 0)
    frozen = None if one_model else 0
    self._of_hyper = algorithms.Hyper(**axes | {'frozen': frozen})
    self.evaluate = log_lib.evaluator(self._run.evaluate, exp, mesh)
    self.data = mesh_lib.place(mesh, exp.data)
    self._programs = {}

  def most_points(self, exp: Experiment) -> int:
    """Return the number of points to run at once on the devices of the mesh."""
    on_cpu = self.mesh.devices.flat[0].platform == 'cpu'
    return 1 if on_cpu else self.points_that_fit(exp)

  def points_that_fit(self, exp: Experiment) -> int:
    """Return how many points fit a device's memory in a round, at least 1."""
    one = [exp]
    step, *state, key = self.begin(one)
    cohorts, _ = self.cohorts(one, 0, [0 if self._private else None])
    args = *state, cohorts, key, self.data, self._run.args[-1]
    used = step.lower(*args).compile().memory_analysis()
    each = used.temp_size_in_bytes + used.argument_size_in_bytes
    each += used.output_size_in_bytes - (data := comms.nbytes(self.data))
    stats = self.mesh.devices.flat[0].memory_stats() or {}
    limit = stats.get('bytes_limit') or DEVICE_MEMORY
    return max(1, int((MEMORY_SHARE * limit - data) / each))

  def run(self, exps, count: int, bar, secrets=None) -> list[Result]:
    """Run a chunk of points at once, vmapped if there are several.

    The first `count` have results; the others are padding.
    """
    begun = time.monotonic()
    player = Points(self, exps, count, secrets)
    tracks = [_Track(exp) for exp in exps[:count]]

    def enter(first, cohorts, metrics, evaluate):
      del first
      by_point = log_lib.on_host(metrics, len(cohorts), len(cohorts[0]))
      for track, drawn, rows in zip(tracks, cohorts, by_point, strict=False):
        for cohort, row in zip(drawn, rows, strict=True):
          track.enter(cohort, row)
          bar.advance(track.shown())
      if evaluate:
        for track, row in zip(tracks, player.evaluate(), strict=False):
          track.evaluated(row)

    all_diverged = lambda: all(track.diverged for track in tracks)
    done = loop.play(player, self.config, enter, all_diverged)
    seconds = (time.monotonic() - begun) / count
    for _ in range((self.config.rounds - done) * count):
      bar.advance(tracks[0].shown())
    return [
      Result(t.rows, t.diverged, seconds, t.about, params)
      for t, params in zip(tracks, player.params(), strict=False)
    ]

  def begin(self, exps):
    """Jit a dispatch; return it, hyperparameters, first states, root keys.

    Those of several points are stacked, but for what the points share.
    """
    shared = (None if one else 0 for one in (self._one_seed, self._one_key))
    axes = self._of_hyper, 0, *shared, None, 0 if self._private else None
    step = self._jitted(self._run.fn, len(exps), axes, donate_argnums=1)
    keys = [jax.random.key(exp.config.key_seed) for exp in exps]
    key = keys[0] if self._one_key else _stacked(keys, jnp)
    distinct = exps[:1] if self._of_hyper.frozen is None else exps
    frozen = _stacked([exp.hyper.frozen for exp in distinct], jnp)
    pairs = [(exp.hyper._replace(frozen=None), exp.params) for exp in exps]
    hyper, params = _stacked(pairs, jnp)
    starts = hyper._replace(frozen=frozen), params, key
    hyper, params, key = mesh_lib.place(self.mesh, starts)
    init = self._jitted(self._run.init, len(exps), (self._of_hyper, 0))
    return step, hyper, init(hyper, params)._replace(params=params), key

  def _jitted(self, fn, points, axes, **options):
    """Return a jitted function of one point, or vmapped; cached by number."""
    if points == 1:
      return fn
    if (fn, points) not in self._programs:
      self._programs[fn, points] = jax.jit(jax.vmap(fn, axes), **options)
    return self._programs[fn, points]

  def cohorts(self, exps, done, seeds):
    """Return the cohorts of a dispatch: on the mesh, and by point on host."""
    draws = [(e.config.seed, seed) for e, seed in zip(exps, seeds, strict=True)]
    dispatch = self.config.dispatch(done)
    scanned = self.config.rounds_per_dispatch > 1
    pad = lambda cohort: rounds.pad_cohort(cohort, self.mesh.size)
    sampled = {
      draw: [pad(exp.sample(r, draw[1])) for r in dispatch]
      for draw, exp in dict(zip(draws, exps, strict=True)).items()
    }
    by_point = [sampled[draw] for draw in draws]
    distinct = by_point[:1] if self._one_seed else by_point
    stacked = _stacked([_stacked(x, np, scanned) for x in distinct], np)
    axes = [None] * (scanned + (len(distinct) > 1))
    stacked = stacked._replace(outcome=None)
    return mesh_lib.place(self.mesh, stacked, P(*axes, comms.SHARD)), by_point


class Points:
  """Runs of one program at once; those after the first `count` are padding."""

  def __init__(self, program: SweepProgram, exps, count: int, secrets):
    self._program, self._exps, self._count = program, exps, count
    self._step, self._hyper, self.state, self._key = program.begin(exps)
    noise, self._seeds = None, [None] * len(exps)
    if secrets is not None:
      noise = _stacked([s.noise_key for s in secrets], jnp)
      self._seeds = [s.sampling_seed for s in secrets]
    self._noise_keys = mesh_lib.place(program.mesh, noise)

  def play(self, done: int) -> tuple[list[list[rounds.Cohort]], Tree]:
    """Play a dispatch of rounds of all runs."""
    placed, cohorts = self._program.cohorts(self._exps, done, self._seeds)
    rest = self._key, self._program.data, self._noise_keys
    self.state, metrics = self._step(self._hyper, self.state, placed, *rest)
    return cohorts, metrics

  def evaluate(self) -> list[Row]:
    """Return the test metrics of each run, without padding."""
    pairs = zip(self.params(), self._exps[: self._count], strict=False)
    return [self._program.evaluate(params, exp.hyper) for params, exp in pairs]

  def params(self) -> list[Params]:
    """Return the parameters of each run."""
    if (count := len(self._exps)) == 1:
      return [self.state.params]
    one = lambda i: jax.tree.map(lambda x: x[i], self.state.params)
    return [one(i) for i in range(count)]


class _Track:
  """The records of one point, until it diverges."""

  def __init__(self, exp):
    self.rows, self.diverged = [], False
    self.about = log_lib.privacy_summary(exp)
    self._log, self._private = log_lib.RunLog(exp), exp.guarantee is not None

  def enter(self, cohort, metrics):
    if self.diverged:
      return
    # The training loss has no noise: stopping a private run by it would leak.
    finite = self._private or math.isfinite(metrics['train_loss'])
    try:
      record = self._log.record(len(self.rows), cohort, metrics)
    except log_lib.DivergedError:
      finite = False
    if finite:
      self.rows.append(record)
    self.diverged = not finite

  def evaluated(self, row):
    if self.diverged:
      return
    self.diverged = not all(math.isfinite(v) for v in row.values())
    if self.diverged:
      self.rows.pop()
    else:
      self.rows[-1] |= row

  def shown(self):
    """Return the last record, for the progress bar."""
    nothing = {'total_uplink_bytes': 0, 'total_downlink_bytes': 0}
    return self.rows[-1] if self.rows else {'train_loss': math.nan} | nothing


def _stacked(trees, xp, always=False):
  """Stack trees along a new leading axis; one alone stays, unless `always`."""
  if len(trees) == 1 and not always:
    return trees[0]
  return jax.tree.map(lambda *xs: xp.stack(xs), *trees)
