"""The training loop: plays rounds, evaluates, logs, checkpoints, resumes."""

from collections.abc import Callable
import contextlib
import functools
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple
import warnings

from fl_sketch import experiment, models, reporting, rounds
from fl_sketch.experiment import parts
from fl_sketch.reporting import label_distribution
from fl_sketch.rounds import mesh as mesh_lib, processes, traffic
from fl_sketch.training import identity, log, noise_secret, preflight, signals
from fl_sketch.training.best import Best
from fl_sketch.training.checkpoints import Checkpoints
from fl_sketch.training.extending import allowed
from fl_sketch.training.initial import begun, keep as keep_initial
from fl_sketch.training.program import program
from fl_sketch.training.runner import Runner
from fl_sketch.training.workdir import Workdir, WorkdirError, has_rows
from fl_sketch.utils import extras, progress as progress_lib
import jax

_FAR = 10  # times the first loss: the noise of training stays below it


class Result(NamedTuple):
  """Outcome of a run."""

  state: rounds.FedState  # of server and clients after the last round
  row: dict[str, Any]  # the last row of metrics
  finished: bool  # False if a signal stopped the run, which can be resumed
  # By metric, as 'rejected_clients', how many clients all rounds have left out,
  # and in how many rounds.
  left_out: dict[str, list[int]]
  metrics: Any = None  # the logged rows, as of `loaded.Run`


def train(
  exp: experiment.Experiment,
  folder: str | os.PathLike | None = None,
  *,
  mesh: jax.sharding.Mesh | None = None,
  progress: bool = True,
  on_row: Callable[[dict[str, Any]], None] | None = None,
  extend: bool = False,
  init_from: str | os.PathLike | None = None,
  runner: Callable[..., Any] | None = None,
) -> Result:
  """Trains an experiment in a workdir, or resumes it from its last checkpoint.

  The folder gets config.json, problem.json, metrics.jsonl, checkpoints/, best/
  (`keep_best`), figures, secret/ if the run is private, and at the end
  summary.json; see `workdir.Workdir`. Of a finished run it only restores the
  state. But for `seconds`, a resumed run ends with the same bits as one that
  was never stopped; with other devices or another clients_per_step, up to
  rounding.

  Args:
    exp: from `experiment.build`.
    folder: the workdir; None keeps no file, and the run cannot be resumed.
    mesh: the devices of the run; all of them by default.
    progress: whether to show a bar on stderr.
    on_row: called with each row that this start logs, after it is written, in
      the first process; see `sinks`.
    extend: whether a private run may have more rounds than it was started with,
      and a larger epsilon; see `extending.allowed`. Other runs always may.
    init_from: the folder of a run, from whose last parameters a new one starts;
      its subfolder best/ for the best ones. See `initial.begun`.
    runner: what plays the rounds, with the arguments of `Runner`, in place of
      this process; see `engines.server`.

  Raises:
    DivergedError: the server's state, or the updates of a whole cohort of a run
      that is neither private nor attacked, are not finite; names the round and
      the last good checkpoint.
    WorkdirError: the folder holds a run of another config or another problem,
      is in use, or cannot be written.
    SecretError: the secret of a private run is missing, or others can read it.
    CheckpointError: the folder holds checkpoints, none of which can be read.
    SaveError: a file cannot be written, as on a full disk.
    TooLargeError: the run does not fit the machine; suggests config changes.
    PlacementError: the devices cannot hold what the config places on them.
  """
  mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
  if not isinstance(exp, experiment.Experiment):
    raise TypeError(
      f'exp is of type {type(exp).__name__}; pass experiment.build(config).'
    )
  if folder is not None and not os.fspath(folder):
    raise WorkdirError(
      f'{folder=} is empty; set a folder, or None to keep no files.'
    )
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
    c, problem = exp.config, identity.of(exp, mesh)
    may_change = functools.partial(allowed, exp=exp, extend=extend)
    self.files = Workdir(folder, c, problem, may_change)
    opened.callback(self.files.close)
    run = program(exp, mesh)
    here = runner is None
    if jax.process_count() == 1 and not self.files.finished and here:
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
    self.store = Checkpoints(where, c.keep_checkpoints, mesh.size)
    opened.callback(self.store.close)
    self.start, ledger = self._restore()
    if self.start > c.rounds:
      raise WorkdirError(
        f'{folder} has completed {self.start} rounds, more than '
        f'rounds={c.rounds}. Set rounds >= {self.start}, or another workdir.'
      )
    if self.start < (since := self.files.problem.get(identity.SINCE, 0)):
      raise WorkdirError(
        f'{folder} has lost the checkpoint of round {since}, from which this '
        'private run was extended: it would release rounds twice. Restore it.'
      )
    self.was_finished = self.files.finished and self.start == c.rounds
    if exp.guarantee is not None and not self.was_finished:
      # Rounds may have been released that no checkpoint holds.
      resumed = self.start > 0 or has_rows(folder)
      own = c, self.files.problem, folder
      self.runner.use(noise_secret.of_run(*own, resumed=resumed))
    self.log = log.RunLog(exp, ledger)
    # A vocabulary may be one of private texts, which nothing accounts for.
    tokenizer = None if c.is_private else exp.tokenizer
    self.row = self.files.begin(self.start, tokenizer)
    if init_from is not None:
      keep_initial(folder, exp.params)
    self.best = Best(folder, c.keep_best, self.store.rounds)

  def show(self, opened, progress, on_row):
    """Opens the progress bar, and sets what is called with each row."""
    c, self.on_row = self.exp.config, on_row
    self.begun = time.monotonic() - self.row.get('seconds', 0.0)
    shown = progress and jax.process_index() == 0
    self.bar = progress_lib.Progress(c.rounds, self.start, c.cohort, shown)
    opened.callback(self.bar.close)

  def _restore(self):
    """Restores the newest checkpoint, if any; its rounds done and ledger."""
    empty = log.empty_ledger(self.exp)
    if (saved := self.store.restore(self.runner.state, empty)) is None:
      return 0, empty
    rows = self.runner.client_state
    self.runner.state = rows.restored(saved.state, saved.rows)
    return saved.rounds_done, saved.ledger

  def run(self, caught) -> Result:
    """Plays the remaining rounds."""
    c = self.exp.config
    done, pending = self.start, None
    # All processes leave the loop together.
    while done < c.rounds and not processes.any_process(bool(caught)):
      dispatch = done, *self.runner.play(done)
      done = c.dispatch(done).stop
      # The rounds just dispatched run while those before them are logged.
      self._enter(pending)
      pending = dispatch
      evaluate, save = (
        done % every == 0 or done >= c.rounds
        for every in (c.eval_every, c.checkpoint_every)
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
    rows = reporting.read_metrics(path) if path.exists() else []
    metrics = reporting.as_array(rows)
    out = self.log.ledger.left_out
    return Result(self.runner.state, self.row, done >= c.rounds, out, metrics)

  def _save(self, done):
    if self.keeps_files:
      state, rows = self.runner.state, self.runner.client_state
      self.store.save(done, state, self.log.ledger, rows.saved(state))
      self.best.keep_only(self.store.rounds)

  def report(self, result: Result):
    """Writes the summary of a finished run, then draws its figures."""
    if result.finished:
      self._check_loss(result.row)
    exp, folder = self.exp, self.files.folder
    if jax.process_index() > 0 or not self.keeps_files or not has_rows(folder):
      return
    if result.finished:
      left_out = traffic.sentence_of(result.left_out, exp.config.rounds)
      for said in filter(None, (left_out, noise_secret.sentence(folder))):
        progress_lib.note(said)
      about = log.privacy_summary(exp) | self.best.summary()
      about['parameters'] = models.num_params(exp.params)
      about['left_out'] = result.left_out
      self.files.summarize(result.row, **about)
    try:
      with extras.optional_figures():
        if exp.labels is not None and exp.config.shows_all:
          path, classes = folder / 'labels.png', int(exp.labels.max()) + 1
          label_distribution.draw(exp.labels, exp.partition, path, classes)
        reporting.draw_run(folder)
    except OSError as e:
      warnings.warn(
        f'Figures of {folder} cannot be written: {e}. Metrics and checkpoints '
        'are complete.',
        stacklevel=3,
      )

  def _check_loss(self, row):
    """Warns if the training loss ended far above that of the first model."""
    # The first row cannot tell: its loss is a mean over diverging local steps.
    last = row.get('train_loss', 0.0)
    if not last > _FAR:  # ordinary runs need no evaluation
      return
    params = mesh_lib.place(self.mesh, self.exp.params)
    first = self.evaluate(params).get('test_loss', last)
    if not last - first > _FAR * abs(first):
      return
    c = self.exp.config
    warnings.warn(
      f'Final training loss {last:.4g}; test loss of the initial model '
      f'{first:.4g}. Try a smaller client_lr={c.client_lr:g} or '
      f'server_lr={c.server_lr:g}.',
      stacklevel=4,
    )

  def _enter(self, pending, evaluate=False):
    """Logs the rounds of one dispatch, and an evaluation with the last."""
    if pending is None:
      return
    first, cohorts, metrics = pending
    (by_round,) = log.on_host(metrics, 1, len(cohorts))
    for i, cohort in enumerate(cohorts):
      try:
        record = self.log.record(first + i, cohort, by_round[i])
      except log.DivergedError as e:
        where = 'there is no checkpoint yet'
        if (good := self.store.newest) is not None:
          folder = self.files.folder / 'checkpoints'
          where = f'the last good checkpoint is {folder}/{good}'
        raise log.DivergedError(
          f'{e}; {where}. Try a smaller server_lr or client_lr, or a larger '
          'sketch.'
        ) from None
      if evaluate and i == len(cohorts) - 1:
        record |= self.evaluate(self.runner.state.params)
      c, done = self.exp.config, first + i + 1
      record['seconds'] = round(time.monotonic() - self.begun, 3)
      self.row = record
      logged = done % c.log_every == 0 or done == c.rounds
      if logged or 'test_loss' in record:
        self.files.write(record)
        if self.on_row is not None and jax.process_index() == 0:
          self.on_row(dict(record))
      self.bar.advance(record)
      self.best.consider(record, self.runner.state.params)
