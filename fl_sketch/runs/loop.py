"""The training loop: play rounds, evaluate, log, save, resume."""

from collections.abc import Callable
import contextlib
import functools
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

from fl_sketch import models, rounds
from fl_sketch.rounds import mesh as mesh_lib, processes, traffic
from fl_sketch.runs import (
  identity,
  label_distribution,
  log,
  noise_secret,
  parts,
  preflight,
  signals,
)
from fl_sketch.runs.best import Best
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.checkpoints import Checkpoints
from fl_sketch.runs.extending import allowed
from fl_sketch.runs.initial import begun, keep as keep_initial
from fl_sketch.runs.metrics import Row, as_array, read_metrics
from fl_sketch.runs.over_seeds import draw_run
from fl_sketch.runs.program import program
from fl_sketch.runs.runner import Runner
from fl_sketch.runs.workdir import Workdir, WorkdirError, has_rows
from fl_sketch.utils import extras, progress as progress_lib
import jax
import numpy as np


class Result(NamedTuple):
  """Outcome of a run."""

  state: rounds.FedState  # of server and clients after the last round
  row: Row  # the last row of metrics
  finished: bool  # False if a signal stopped the run, which can be resumed
  # For each metric, as 'rejected_clients': [clients dropped, rounds with any].
  left_out: dict[str, list[int]]
  metrics: np.ndarray | None = None  # the logged rows, as of `loaded.Run`


def train(
  exp: Experiment,
  folder: str | os.PathLike | None = None,
  *,
  mesh: jax.sharding.Mesh | None = None,
  progress: bool = True,
  on_row: Callable[[Row], None] | None = None,
  extend: bool = False,
  init_from: str | os.PathLike | None = None,
  runner: Callable[..., Any] | None = None,
) -> Result:
  """Train an experiment in a workdir, or resume it from its last checkpoint.

  The folder gets the files of `workdir.Workdir`, checkpoints/, best/
  (`keep_best`), figures, and secret/ if the run is private. A resumed run ends
  with the same bits as one that was never stopped; with other devices or
  another clients_per_step, up to rounding. A finished run is only read.

  Args:
    exp: from `build`.
    folder: the workdir; None keeps no file, and the run cannot be resumed.
    mesh: the devices of the run; all of them by default.
    progress: whether to show a bar on stderr.
    on_row: called with each logged row, in the first process; see `sinks`.
    extend: whether a private run may have more rounds, see `extending.allowed`.
    init_from: the folder of a run, see `initial.begun`.
    runner: makes what plays the rounds, from the arguments of `Runner`.

  Raises:
    DivergedError: the server's state, or the updates of a whole cohort, are not
      finite.
    WorkdirError: the folder holds a run of another config or another problem,
      is in use, or cannot be written.
    SecretError: the secret of a private run is missing, or others can read it.
    CheckpointError: the last checkpoint cannot be read.
    SaveError: a file cannot be written, as on a full disk.
    TooLargeError: the run does not fit the machine.
    PlacementError: the devices cannot hold what the config places on them.
  """
  mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
  with signals.caught() as caught, contextlib.ExitStack() as opened:
    loop = _Loop(exp, folder, mesh, opened, extend, init_from, runner)
    loop.show(opened, progress, on_row)
    result = loop.run(caught)
    if not loop.was_finished:
      loop.report(result)
    # JAX would end processes that still wait for one that has left.
    processes.wait_for_all('reported')
  return result


class _Loop:
  """The compiled functions, files and counters of one run."""

  def __init__(self, exp, folder, mesh, opened, extend, init_from, runner):
    self.mesh, self.keeps_files = mesh, folder is not None
    if folder is None:
      folder = opened.enter_context(tempfile.TemporaryDirectory())
    folder = pathlib.Path(folder)
    self.exp = exp = begun(exp, folder, init_from)
    config, problem = exp.config, identity.of(exp, mesh)
    may_change = functools.partial(allowed, exp=exp, extend=extend)
    self.files = Workdir(folder, config, problem, may_change)
    opened.callback(self.files.close)
    run = program(exp, mesh)
    alone = jax.process_count() == 1 and runner is None
    if alone and not self.files.finished:
      run = preflight.check(exp, mesh, run)
    if exp.guarantee is not None and not self.files.finished:
      # Its trace is kept for the compilation.
      parts.check_program(exp, run.fn, *run.args)
    self.runner = (runner or Runner)(exp, mesh, folder, run)
    opened.callback(self.runner.close)
    evaluate = log.evaluator(run.evaluate, exp, mesh)
    self.evaluate = lambda params: (
      evaluate(params, self.runner.hyper) | self.runner.evaluate()
    )
    where = folder / 'checkpoints'
    self.store = Checkpoints(where, config.keep_checkpoints, mesh.size)
    opened.callback(self.store.close)
    self.start, ledger = self._restore()
    if self.start > config.rounds:
      raise WorkdirError(
        f'{folder} has completed {self.start} > rounds={config.rounds}. Set '
        f'rounds >= {self.start}, or another workdir.'
      )
    self.was_finished = self.files.finished and self.start == config.rounds
    if exp.guarantee is not None and not self.was_finished:
      # Rounds may have been released that no checkpoint holds.
      resumed = self.start > 0 or has_rows(folder)
      secret = noise_secret.of_run(config, problem, folder, resumed=resumed)
      self.runner.use(secret)
    self.log = log.RunLog(exp, ledger)
    # A vocabulary may be one of private texts, which nothing accounts for.
    tokenizer = None if config.is_private else exp.tokenizer
    self.row = self.files.begin(self.start, tokenizer)
    if init_from is not None:
      keep_initial(folder, exp.params)
    self.best = Best(folder, config.keep_best, self.store.rounds)

  def show(self, opened, progress, on_row):
    """Open the progress bar, and set what is called with each row."""
    config, self.on_row = self.exp.config, on_row
    self.begun = time.monotonic() - self.row.get('seconds', 0.0)
    shown = progress and jax.process_index() == 0
    size = config.rounds, self.start, config.cohort
    self.bar = progress_lib.Progress(*size, shown)
    opened.callback(self.bar.close)

  def _restore(self):
    """Restore the newest checkpoint; return its rounds done and ledger."""
    empty = log.empty_ledger(self.exp)
    if (saved := self.store.restore(self.runner.state, empty)) is None:
      return 0, empty
    rows = self.runner.client_state
    self.runner.state = rows.restored(saved.state, saved.rows)
    return saved.rounds_done, saved.ledger

  def run(self, caught) -> Result:
    """Play the remaining rounds."""
    config = self.exp.config
    done, pending = self.start, None
    # All processes leave the loop together.
    while done < config.rounds and not processes.any_process(bool(caught)):
      dispatch = done, *self.runner.play(done)
      done = config.dispatch(done).stop
      # The rounds just dispatched run while those before them are logged.
      self._enter(pending)
      pending = dispatch
      evaluate, save = (
        done % every == 0 or done >= config.rounds
        for every in (config.eval_every, config.checkpoint_every)
      )
      if evaluate or save:
        self._enter(pending, evaluate)
        pending = None
      if save:
        self._save(done)
    self._enter(pending)
    if self.store.newest != done and done:
      self._save(done)
    path = self.files.metrics
    rows = read_metrics(path) if path.exists() else []
    metrics = as_array(rows)
    left_out, finished = self.log.ledger.left_out, done >= config.rounds
    return Result(self.runner.state, self.row, finished, left_out, metrics)

  def _save(self, done):
    if self.keeps_files:
      state, rows = self.runner.state, self.runner.client_state
      self.store.save(done, state, self.log.ledger, rows.saved(state))
      self.best.keep_only(self.store.rounds)

  def report(self, result: Result):
    """Write the summary of a finished run, then draw its figures."""
    exp, folder = self.exp, self.files.folder
    if jax.process_index() > 0 or not self.keeps_files or not has_rows(folder):
      return
    if result.finished:
      left_out = traffic.sentence_of(result.left_out, exp.config.rounds)
      for line in left_out, noise_secret.sentence(folder):
        if line:
          progress_lib.note(line)
      about = log.privacy_summary(exp) | self.best.summary()
      about['parameters'] = models.num_params(exp.params)
      about['left_out'] = result.left_out
      self.files.summarize(result.row, **about)
    with extras.optional_figures():
      if exp.labels is not None and exp.config.shows_all:
        path, classes = folder / 'labels.png', int(exp.labels.max()) + 1
        label_distribution.draw(exp.labels, exp.partition, path, classes)
      draw_run(folder)

  def _enter(self, pending, evaluate=False):
    """Log the rounds of one dispatch, and an evaluation with the last."""
    if pending is None:
      return
    first, cohorts, metrics = pending
    (by_round,) = log.on_host(metrics, 1, len(cohorts))
    for i, cohort in enumerate(cohorts):
      try:
        record = self.log.record(first + i, cohort, by_round[i])
      except log.DivergedError as e:
        where = f'{self.files.folder}/checkpoints/{self.store.newest}'
        raise log.DivergedError(
          f'{e}. Try a smaller server_lr or client_lr. Last checkpoint: {where}'
        ) from None
      if evaluate and i == len(cohorts) - 1:
        record |= self.evaluate(self.runner.state.params)
      config, done = self.exp.config, first + i + 1
      record['seconds'] = round(time.monotonic() - self.begun, 3)
      self.row = record
      logged = done % config.log_every == 0 or done == config.rounds
      if logged or 'test_loss' in record:
        self.files.write(record)
        if self.on_row is not None and jax.process_index() == 0:
          self.on_row(dict(record))
      self.bar.advance(record)
      self.best.consider(record, self.runner.state.params)
