"""The loop: sample, round, evaluate, log, checkpoint, resume."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import signal
import threading
import time
from typing import Any, NamedTuple
import warnings

from fl_sketch import experiment, reporting, rounds
from fl_sketch.privacy import types
from fl_sketch.reporting import label_distribution
from fl_sketch.rounds import (
  comms,
  mesh as mesh_lib,
  processes,
  traffic,
)
from fl_sketch.training import (
  checkpoints,
  noise_secret,
  preflight,
  program as program_lib,
  runner,
  workdir as workdir_lib,
)
from fl_sketch.utils import progress as progress_lib
import jax
from jax.sharding import PartitionSpec as P
import numpy as np


class DivergedError(FloatingPointError):
  """The server's state, or the updates of all clients, are not finite."""


class Result(NamedTuple):
  """How a run ended.

  Attributes:
    state: after the last round that ran.
    row: the last row of metrics.
    finished: False if a signal stopped the run; started again, it goes on.
  """

  state: rounds.FedState
  row: dict[str, Any]
  finished: bool


def train(
  exp: experiment.Experiment,
  folder: str,
  *,
  mesh: jax.sharding.Mesh | None = None,
  progress: bool = True,
) -> Result:
  """Runs an experiment in a folder, or goes on where an earlier start ended.

  The folder gets config.json, metrics.jsonl, checkpoints/, pictures, secret/ if
  the run is private, and at the end summary.json; see `workdir.Workdir`. A
  resumed run ends with the same bits as one that was never stopped, `seconds`
  apart.

  Args:
    exp: from `experiment.build`.
    folder: the workdir.
    mesh: over which devices; all of them by default.
    progress: whether to show a bar on stderr.

  Raises:
    DivergedError: the server's state, or the updates of a whole cohort of a run
      that is neither private nor attacked, are not finite; names the round and
      the last good checkpoint.
    WorkdirError: the folder holds another run.
    SecretError: the secret of a private run is missing, or open to others.
    CheckpointError: it holds checkpoints, none of which can be read.
    SaveError: a file cannot be written, as on a full disk.
    TooLargeError: the run does not fit the machine; says what to change.
    PlacementError: what the config wants on the devices cannot lie there.
  """
  mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
  with _catch_signals() as caught, _Loop(exp, folder, mesh, progress) as loop:
    result = loop.run(caught)
    loop.report(result)
    processes.wait_for_all(
      'reported'
    )  # or JAX would end those who wait for others
  return result


class _Loop:
  """One run's programs, files and counters."""

  def __init__(self, exp, folder, mesh, progress):
    self.exp, self.mesh = exp, mesh
    with contextlib.ExitStack() as opened:
      self._open(opened, folder, progress)
      self._opened = opened.pop_all()  # no step has raised: they stay open

  def _open(self, opened, folder, progress):
    exp, mesh, c = self.exp, self.mesh, self.exp.config
    self.files = workdir_lib.Workdir(folder, c)
    opened.callback(self.files.close)
    run = program_lib.program(exp, mesh)
    if jax.process_count() == 1:
      preflight.require(exp, mesh, run)
    self.runner = runner.Runner(exp, mesh, self.files.folder, run)
    opened.callback(self.runner.close)
    self.evaluate_fn = run.evaluate
    self.test = mesh_lib.place(
      mesh, mesh_lib.pad(exp.test, mesh.size), P(comms.SHARD)
    )
    self.store = checkpoints.Checkpoints(
      self.files.folder / 'checkpoints', c.keep_checkpoints, mesh.size
    )
    opened.callback(self.store.close)
    self.start, self.ledger = self._restore()
    if self.start > c.rounds:
      raise workdir_lib.WorkdirError(
        f'Expected rounds={c.rounds} >= {self.start}, the rounds that are done.'
      )
    self.runner.use(self._secret())
    self.epsilons = epsilons_by_round(exp)
    self.row = self.files.begin(self.start)
    self.begun = time.monotonic() - self.row.get('seconds', 0.0)
    shown = progress and jax.process_index() == 0
    self.bar = progress_lib.Progress(c.rounds, self.start, c.cohort, shown)
    opened.callback(self.bar.close)

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._opened.close()

  def _restore(self):
    """Rounds done and the ledger at the newest checkpoint, if there is one."""
    dense = comms.nbytes(self.exp.params)
    empty = traffic.Ledger.empty(self.exp.config.population, dense)
    found = self.store.restore(self.runner.state, empty)
    if found is None:
      return 0, empty
    self.runner.state = self.runner.client_state.restored(
      found.state, found.rows
    )
    return found.rounds_done, found.ledger

  def _secret(self):
    """Where noise and sampling of a private run come from; else None."""
    if self.exp.guarantee is None:
      return None
    # Rounds may be done though no checkpoint holds them.
    return noise_secret.of_run(
      self.exp.config,
      self.files.folder,
      resumed=self.start > 0 or self.files.has_metrics(),
    )

  def run(self, caught) -> Result:
    """Plays the rounds that are left."""
    c = self.exp.config
    done, pending = self.start, None
    while done < c.rounds and not _stopped(caught):
      cohorts, metrics = self.runner.play(done)
      # The rounds just dispatched run while those before them are logged.
      self._log(pending)
      pending = done, cohorts, metrics
      done += c.rounds_per_dispatch
      if self._due(done, c.eval_every) or self._due(done, c.checkpoint_every):
        self._log(pending, evaluate=self._due(done, c.eval_every))
        pending = None
      if self._due(done, c.checkpoint_every):
        self._save(done)
    self._log(pending)
    if self.store.newest != done and done:
      self._save(done)
    return Result(self.runner.state, self.row, done >= c.rounds)

  def _save(self, done):
    state, rows = self.runner.state, self.runner.client_state
    self.store.save(done, state, self.ledger, rows.saved(state))

  def report(self, result: Result):
    """Writes the summary of a finished run, then draws its figures.

    A figure that cannot be written, as on a full disk, is reported by a
    warning: the run itself is complete.
    """
    if jax.process_index() > 0 or not self.files.metrics.stat().st_size:
      return
    if result.finished:
      parameters = sum(x.size for x in jax.tree.leaves(self.exp.params))
      about = privacy_of(self.exp)
      self.files.summarize(result.row, parameters=parameters, **about)
    try:
      self._draw()
    except OSError as e:
      warnings.warn(
        f'Figures of {self.files.folder} cannot be written: {e}. Metrics and '
        'checkpoints are complete.',
        stacklevel=3,
      )

  def _draw(self):
    if self.exp.labels is not None:
      label_distribution.draw(
        self.exp.labels,
        self.exp.partition,
        self.files.folder / 'labels.png',
        num_classes=int(self.exp.labels.max()) + 1,
      )
    reporting.draw_run(self.files.folder)

  def _due(self, done, every):
    return done % every == 0 or done >= self.exp.config.rounds

  def _log(self, pending, evaluate=False):
    """Enters the rounds of one dispatch into the ledger and the files."""
    if pending is None:
      return
    first, cohorts, metrics = pending
    metrics = jax.tree.map(np.atleast_1d, jax.device_get(metrics))
    for i, cohort in enumerate(cohorts):
      one = {k: v[i].item() for k, v in metrics.items()}
      if what := lost(self.exp, cohort, one):
        raise DivergedError(self._diverged(first + i, what))
      row = row_of(first + i, cohort, one, self.ledger)
      if self.epsilons is not None:
        row['epsilon'] = self.epsilons[first + i]
      if evaluate and i == len(cohorts) - 1:
        row |= evaluated(self.evaluate_fn, self.runner.state.params, self.test)
      self._write(row)

  def _write(self, row):
    done = row['round'] + 1
    row['seconds'] = round(time.monotonic() - self.begun, 3)
    self.row = row
    logged = done % self.exp.config.log_every == 0
    if logged or 'test_loss' in row or done == self.exp.config.rounds:
      self.files.write(row)
    self.bar.advance(row)

  def _diverged(self, round_index, what):
    good = self.store.newest
    where = (
      'there is no checkpoint yet'
      if good is None
      else f'the last good checkpoint is {self.files.folder}/checkpoints/{good}'
    )
    return (
      f'Round {round_index}: {what} are not finite; {where}. '
      'Try a smaller server_lr or client_lr, or a larger sketch.'
    )


def privacy_of(exp: experiment.Experiment) -> dict[str, Any]:
  """What the summary of a run says of its privacy; empty if it claims none."""
  if exp.guarantee is None:
    return {}
  return {'privacy': exp.guarantee.statement.as_dict()}


def epsilons_by_round(exp: experiment.Experiment) -> list[Any] | None:
  """Epsilon after every round of a private run; 'inf' without noise.

  The accountant takes its time: it is asked for the last round and for numbers
  m 2^k with m < 8, and a round in between is told the epsilon of the next.
  """
  if exp.guarantee is None:
    return None
  last = exp.config.rounds
  some = {m << k for m in range(1, 8) for k in range(last.bit_length())}
  asked = sorted({r for r in some if r < last} | {last})
  known = types.plain(exp.guarantee.epsilons(asked))
  return [known[i] for i in np.searchsorted(asked, np.arange(1, last + 1))]


def lost(
  exp: experiment.Experiment, cohort: rounds.Cohort, metrics: Mapping[str, Any]
) -> str | None:
  """What is not finite after a round, if anything is.

  A private run must not stop for what its clients sent: that would tell. Where
  clients are byzantine, or too long, all of a small cohort may be: a round in
  which nobody took part.
  """
  if not metrics['finite']:
    return 'parts of the server state'
  defended = exp.attack is not None or exp.max_payload_norm is not None
  if defended or exp.guarantee is not None:
    return None
  sent = int((cohort.weight > 0).sum())
  return 'all updates' if 0 < sent == metrics['rejected_clients'] else None


def row_of(
  number: int, cohort: Any, metrics: Mapping[str, Any], ledger: Any
) -> dict[str, Any]:
  """The row of round `number`, whose bytes it enters into the ledger."""
  one = dict(metrics)
  _, up, down = (one.pop(name) for name in ('finite', 'up', 'down'))
  moved = ledger.charge(cohort.ids, cohort.weight, up, down, cohort.outcome)
  return {'round': number} | one | moved


def evaluated(fn: Callable[..., Any], params: Any, test: Any) -> dict[str, Any]:
  """Test metrics: sums over the test set, divided by their count."""
  sums = jax.device_get(fn(params, test))
  count = sums.pop('count')
  return {f'test_{k}': float(v / count) for k, v in sums.items()}


@contextlib.contextmanager
def _catch_signals() -> Iterator[list[int]]:
  """Collects SIGINT and SIGTERM, so that the loop can save before it ends.

  A second signal ends the process at once. Only the main thread may catch
  signals; in any other the loop runs without.
  """
  caught: list[int] = []
  if threading.current_thread() is not threading.main_thread():
    yield caught
    return

  def note(number, frame):
    del frame
    caught.append(number)
    for s, handler in before.items():
      signal.signal(s, handler)

  before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
  try:
    yield caught
  finally:
    for s, handler in before.items():
      signal.signal(s, handler)


def _stopped(caught) -> bool:
  """Whether any process was told to stop; all must leave the loop together."""
  return processes.any_process(bool(caught))
