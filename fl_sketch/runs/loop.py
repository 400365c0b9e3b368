"""The training loop: play rounds, evaluate, log, save, resume."""

from collections.abc import Callable
import contextlib
import math
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

from fl_sketch import models, rounds
from fl_sketch.rounds import mesh as mesh_lib, peers, traffic
from fl_sketch.runs import (
  experiment,
  log,
  memory,
  noise_secret,
  same_run,
  signals,
)
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.checkpoints import Checkpoints
from fl_sketch.runs.config import Config
from fl_sketch.runs.metrics import Row, as_array, read_metrics
from fl_sketch.runs.player import Player, RunPlayer, Shards
from fl_sketch.runs.plots import draw_run
from fl_sketch.runs.program import program
from fl_sketch.runs.saved_params import Best, begun, keep_initial
from fl_sketch.runs.workdir import (
  Workdir,
  WorkdirError,
  has_rows,
  in_all_processes,
)
from fl_sketch.utils import digests, extras, files, progress as progress_lib
from fl_sketch.utils.types import Params
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

  def __repr__(self) -> str:
    return f'Result(finished={self.finished}, row={self.row})'

  @property
  def params(self) -> Params:
    """The parameters after the last round."""
    return self.state.params


def train(
  exp: Experiment,
  folder: str | os.PathLike | None = None,
  *,
  mesh: jax.sharding.Mesh | None = None,
  progress: bool = True,
  on_row: Callable[[Row], Any] | None = None,
  extend: bool = False,
  init_from: str | os.PathLike | None = None,
  player: Callable[..., RunPlayer] | None = None,
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
    on_row: called with each logged row, in the first process; the run stops,
      and can be resumed, if it returns True.
    extend: whether a private run may have more rounds (`check_rounds`).
    init_from: the folder of a run, see `saved_params.begun`.
    player: makes what plays the rounds, from the arguments of `Shards`.

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
    run = _Run(exp, folder, mesh, opened, extend, init_from, player)
    run.show(opened, progress, on_row)
    # All processes leave the loop together.
    stopped = lambda: peers.any_process(bool(caught) or run.is_told_to_stop)
    config = run.exp.config
    done = play(run.player, config, run.enter, stopped, run.save, run.start)
    result = run.result(done)
    if not run.was_finished:
      run.report(result)
    # JAX would end processes that still wait for one that has left.
    peers.wait_for_all('reported')
  return result


def play(
  player: Player,
  config: Config,
  enter: Callable[..., None],
  stopped: Callable[[], bool],
  save: Callable[[int], None] | None = None,
  done: int = 0,
) -> int:
  """Play the rounds of a run, or of points of a sweep; return rounds done.

  The state of `player` is that after `done` rounds. `enter` logs a dispatch:
  (first round, cohorts, metrics, whether to evaluate). `save` writes a
  checkpoint: (rounds done). `stopped` ends before the next dispatch.
  """
  pending = None
  while done < config.rounds and not stopped():
    dispatch = done, *player.play(done)
    done = config.dispatch(done).stop
    # The rounds just dispatched run while those before them are logged.
    if pending is not None:
      enter(*pending, False)
    pending = dispatch
    evaluates, saves = (
      done % every == 0 or done >= config.rounds
      for every in (config.eval_every, config.checkpoint_every)
    )
    if evaluates or saves:
      enter(*pending, evaluates)
      pending = None
    if saves and save is not None:
      save(done)
  if pending is not None:
    enter(*pending, False)
  return done


class _Run:
  """The player, the files and the counters of one run."""

  def __init__(self, exp, folder, mesh, opened, extend, init_from, player):
    self.keeps_files = folder is not None
    if folder is None:
      folder = opened.enter_context(tempfile.TemporaryDirectory())
    folder = pathlib.Path(folder)
    self.exp = exp = begun(exp, folder, init_from)
    config, problem = exp.config, same_run.problem_of(exp, mesh)
    self.files = Workdir(folder, config, problem)
    opened.callback(self.files.close)
    with in_all_processes(folder):
      same_run.check_rounds(folder, exp, extend)
    where = folder / 'checkpoints'
    self.store = Checkpoints(where, config.keep_checkpoints)
    opened.callback(self.store.close)
    self.was_finished = self.files.finished and self._has_last_checkpoint()
    run, self.certificate = program(exp, mesh), None
    alone = jax.process_count() == 1 and player is None
    if alone and not self.was_finished:
      run = memory.fitted(exp, mesh, run)
    if exp.guarantee is not None and not self.was_finished:
      # Its trace is kept for the compilation.
      self.certificate = experiment.certificate_of(exp, run.fn, *run.args)
    self.player: RunPlayer = (player or Shards)(exp, mesh, folder, run)
    opened.callback(self.player.close)
    self.start, ledger = self._restore()
    if self.start > config.rounds:
      raise WorkdirError(
        f'{folder} has completed {self.start} > rounds={config.rounds}. Set '
        f'rounds >= {self.start}, or another workdir.'
      )
    if not self.was_finished:
      self.player.start(self._secret(problem))
    self.log = log.RunLog(exp, ledger)
    # A vocabulary may be one of private texts, which nothing accounts for.
    tokenizer = None if config.is_private else exp.tokenizer
    if init_from is not None:
      keep_initial(folder, exp.params)
    self.row = self.files.begin(self.start, tokenizer)
    if self.certificate is not None and jax.process_index() == 0:
      from fl_sketch.privacy.noninterference import certificate

      files.write(folder / certificate.NAME, self.certificate)
    self.best = Best(folder, config.keep_best, self.store.rounds)

  def _has_last_checkpoint(self):
    """Whether a finished run has its last checkpoint; refuse it without any."""
    if self.store.newest is None:
      raise WorkdirError(
        f'{self.files.folder} has finished, and its checkpoints are gone. '
        'fl_sketch.load reads its metrics; set another workdir to train again.'
      )
    return self.store.newest == self.exp.config.rounds

  def _restore(self):
    """Restore the newest checkpoint; return its rounds done and ledger."""
    empty = log.empty_ledger(self.exp)
    if (saved := self.store.restore(self.player.state, empty)) is None:
      return 0, empty
    rows = self.player.client_state
    self.player.state = rows.restored(saved.state, saved.rows)
    return saved.rounds_done, saved.ledger

  def _secret(self, problem):
    """Read or draw the secret of a private run; None of a public one."""
    if self.exp.guarantee is None:
      return None
    # Rounds may have been released that no checkpoint holds.
    folder = self.files.folder
    resumed = self.start > 0 or has_rows(folder)
    return noise_secret.of_run(
      self.exp.config, problem, folder, resumed=resumed
    )

  def show(self, opened, progress, on_row):
    """Open the progress bar, and set what is called with each row."""
    config, self.on_row = self.exp.config, on_row
    self.is_told_to_stop = False
    self.begun = time.monotonic() - self.row.get('seconds', 0.0)
    shown = progress and jax.process_index() == 0
    self.bar = progress_lib.Progress(config.rounds, self.start, shown)
    opened.callback(self.bar.close)

  def result(self, done: int) -> Result:
    """Save the last round played, if it is not; return the outcome."""
    if self.store.newest != done and done:
      self.save(done)
    metrics = as_array(read_metrics(self.files.metrics))
    left_out, state = self.log.ledger.left_out, self.player.state
    finished = done >= self.exp.config.rounds
    return Result(state, self.row, finished, left_out, metrics)

  def save(self, done: int):
    if self.keeps_files:
      state, rows = self.player.state, self.player.client_state
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
      if self.certificate is not None:
        digest = digests.of_text(self.certificate)
        about['privacy'] |= {'certificate': digest}
      about['parameters'] = models.num_params(exp.params)
      about['left_out'] = result.left_out
      self.files.summarize(result.row, **about)
    with extras.optional_figures():
      draw_run(folder)

  def enter(self, first, runs, metrics, evaluate):
    """Log the rounds of one dispatch, and an evaluation with the last."""
    (cohorts,) = runs
    (by_round,) = log.on_host(metrics, 1, len(cohorts))
    params = self.player.state.params
    for i, cohort in enumerate(cohorts):
      try:
        record = self.log.record(first + i, cohort, by_round[i])
      except log.DivergedError as e:
        text = f'{e}. Try a smaller server_lr or client_lr.'
        if self.store.newest is not None:
          where = f'{self.files.folder}/checkpoints/{self.store.newest}'
          text += f' Last checkpoint: {where}'
        elif first + i == 0:
          text += ' Or some label or id is not one of the model.'
        raise log.DivergedError(text) from None
      is_nan = math.isnan(record.get('train_loss', 0))
      if (
        is_nan
        and (cohort.weight > 0).any()
        and record.get('rejected_clients') == 0
      ):
        progress_lib.note_once(
          'The training loss is NaN: some sample or label does not suit it.'
        )
      if evaluate and i == len(cohorts) - 1:
        record |= self.player.evaluate()[0]
      config, done = self.exp.config, first + i + 1
      record['seconds'] = round(time.monotonic() - self.begun, 3)
      self.row = record
      logged = done % config.log_every == 0 or done == config.rounds
      if logged or 'test_loss' in record:
        self.files.write(record)
        if self.on_row is not None and jax.process_index() == 0:
          self.is_told_to_stop |= self.on_row(dict(record)) is True
      self.bar.advance(record)
      self.best.consider(record, params)
