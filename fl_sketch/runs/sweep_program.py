"""Compile and run the points of a sweep that differ only in arrays."""

from collections.abc import Collection
import math
import time
from typing import Any, NamedTuple

from fl_sketch import algorithms, rounds
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import config as config_lib, log as log_lib, placement
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.metrics import Row
from fl_sketch.utils import progress as progress_lib
from fl_sketch.utils.types import Params
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


class Program:
  """The compiled rounds of points that differ in seeds and hyperparameters.

  `exp` is of any point, `configs` are of all.
  """

  def __init__(
    self,
    exp: Experiment,
    mesh: jax.sharding.Mesh,
    configs: Collection[config_lib.Config],
  ):
    # Points keep the state of all clients on the devices.
    if placement.decide(exp, mesh, row=()).data == 'host':
      raise ValueError(
        f'feed={exp.config.feed!r} leaves the data on the host, but points '
        "share them on the devices; set feed='device'."
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
    options = {'fetch': exp.fetch, **exp.round_options}
    self._round_fn = rounds.run_round(exp.make, mesh, **options)
    self._scanned = config.rounds_per_dispatch > 1
    if self._scanned:
      self._round_fn = rounds.scan_rounds(self._round_fn)
    evaluate = jax.jit(rounds.run_evaluation(log_lib.metrics_of(exp), mesh))
    self._evaluate = log_lib.evaluator(evaluate, exp, mesh)
    self._data = mesh_lib.place(mesh, exp.data)
    self._programs = {}

    def init(hyper, params):
      state = rounds.init(exp.make(hyper), params, config.population)
      # A copy: jit would return the buffers of the parameters.
      return jax.tree.map(jnp.copy, state)

    self._init = init

  def most_points(self, exp: Experiment) -> int:
    """Return the number of points to run at once on the devices of the mesh."""
    on_cpu = self.mesh.devices.flat[0].platform == 'cpu'
    return 1 if on_cpu else self.points_that_fit(exp)

  def points_that_fit(self, exp: Experiment) -> int:
    """Return how many points fit a device's memory in a round, at least 1."""
    one = [exp]
    step = self._step(one)
    key, seed = self._key(one), 0 if self._private else None
    cohorts, _ = self._cohorts(one, 0, [seed])
    args = [*self._start(one), cohorts, key, self._data]
    if self._private:
      args.append(generators.known_roots(self.config.noise_seed).noise_key)
    used = step.lower(*args).compile().memory_analysis()
    each = used.temp_size_in_bytes + used.argument_size_in_bytes
    each += used.output_size_in_bytes - (data := comms.nbytes(self._data))
    stats = self.mesh.devices.flat[0].memory_stats() or {}
    limit = stats.get('bytes_limit') or DEVICE_MEMORY
    return max(1, int((MEMORY_SHARE * limit - data) / each))

  def run(
    self,
    exps: list[Experiment],
    count: int,
    bar: progress_lib.Progress,
    secrets: list[generators.Roots] | None = None,
  ) -> list[Result]:
    """Run a chunk of points at once, vmapped if there are several.

    The first `count` have results; the others are padding.
    """
    config, begun = self.config, time.monotonic()
    step = self._step(exps)
    hyper, state = self._start(exps)
    key, tracks = self._key(exps), [_Track(exp) for exp in exps[:count]]
    rest, seeds = [self._data], [None] * len(exps)
    if secrets is not None:
      noise = _stacked([s.noise_key for s in secrets], jnp)
      rest.append(mesh_lib.place(self.mesh, noise))
      seeds = [s.sampling_seed for s in secrets]
    pending, done = None, 0
    while done < config.rounds and not all(t.diverged for t in tracks):
      placed, cohorts = self._cohorts(exps, done, seeds)
      state, metrics = step(hyper, state, placed, key, *rest)
      # The devices play these rounds while the previous ones are recorded.
      _enter(tracks, pending, bar)
      pending = cohorts, metrics
      done = config.dispatch(done).stop
      if done % config.eval_every == 0 or done >= config.rounds:
        _enter(tracks, pending, bar)
        pending = None
        models = _each(state.params, len(exps))
        for track, model in zip(tracks, models, strict=False):
          track.evaluated(self._evaluate(model, track.hyper))
    _enter(tracks, pending, bar)
    seconds = (time.monotonic() - begun) / count
    for _ in range((config.rounds - done) * count):
      bar.advance(tracks[0].shown())
    models = _each(state.params, len(exps))
    return [
      Result(t.rows, t.diverged, seconds, t.about, params)
      for t, params in zip(tracks, models, strict=False)
    ]

  def _step(self, exps):
    """Jit a dispatch for all points, which may share cohorts and key."""
    shared = (None if one else 0 for one in (self._one_seed, self._one_key))
    axes = self._of_hyper, 0, *shared, None, *[0] * self._private
    return self._jitted(self._round_fn, len(exps), axes, donate_argnums=1)

  def _start(self, exps):
    """Return hyperparameters and first states of the points, stacked."""
    distinct = exps[:1] if self._of_hyper.frozen is None else exps
    frozen = _stacked([exp.hyper.frozen for exp in distinct], jnp)
    pairs = [(exp.hyper._replace(frozen=None), exp.params) for exp in exps]
    hyper, params = _stacked(pairs, jnp)
    starts = mesh_lib.place(self.mesh, (hyper._replace(frozen=frozen), params))
    axes, whole = (self._of_hyper, 0), mesh_lib.replicated(self.mesh)
    init = self._jitted(self._init, len(exps), axes, out_shardings=whole)
    return starts[0], init(*starts)

  def _jitted(self, fn, points, axes, **options):
    """Jit fn for one point, or vmapped over several; cached by number."""
    if (fn, points) not in self._programs:
      many = fn if points == 1 else jax.vmap(fn, axes)
      self._programs[fn, points] = jax.jit(many, **options)
    return self._programs[fn, points]

  def _key(self, exps):
    distinct = exps[:1] if self._one_key else exps
    keys = [jax.random.key(exp.config.key_seed) for exp in distinct]
    return mesh_lib.place(self.mesh, _stacked(keys, jnp))

  def _cohorts(self, exps, done, seeds):
    """Return the cohorts of a dispatch: on the mesh, and by point on host."""
    draws = [(e.config.seed, seed) for e, seed in zip(exps, seeds, strict=True)]
    dispatch, scanned = self.config.dispatch(done), self._scanned
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


class _Track:
  """The records of one point, until it diverges."""

  def __init__(self, exp):
    self.rows, self.diverged, self.hyper = [], False, exp.hyper
    self.about = log_lib.privacy_summary(exp)
    self._log, self._private = log_lib.RunLog(exp), exp.guarantee is not None

  def enter(self, cohort, metrics):
    """Add the record of one more round."""
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
    """Add test metrics to the record of the last round."""
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


def _each(params, count):
  """Return the parameters of each of the `count` points of a chunk."""
  if count == 1:
    return [params]
  return [jax.tree.map(lambda x, i=i: x[i], params) for i in range(count)]


def _enter(tracks, pending, bar):
  """Add the rounds of one dispatch to the records of the points."""
  if pending is None:
    return
  cohorts, metrics = pending
  metrics = log_lib.on_host(metrics, len(cohorts), len(cohorts[0]))
  for p, track in enumerate(tracks):
    for cohort, one in zip(cohorts[p], metrics[p], strict=True):
      track.enter(cohort, one)
      bar.advance(track.shown())
