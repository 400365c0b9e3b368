"""Write and lock the folder of a run: config, problem, metrics, summary."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
import contextlib
import fcntl
import json
import os
import pathlib
import platform
from typing import Any
import warnings

from fl_sketch.rounds import peers
from fl_sketch.runs import config as config_lib, metrics, same_run
from fl_sketch.runs.metrics import Row
from fl_sketch.runs.same_run import WorkdirError
from fl_sketch.utils import files
import jax


def _make(folder: str | os.PathLike) -> pathlib.Path:
  """Make a folder where there is none; WorkdirError if that fails."""
  folder = pathlib.Path(folder)
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise WorkdirError(f'{folder} cannot be made: {e}.') from e
  return folder


def is_finished(folder: str | os.PathLike, rounds: int) -> bool:
  """Whether the folder has rows and the summary of a run of so many rounds."""
  folder = pathlib.Path(folder)
  summary = same_run.read(folder / 'summary.json', 'a summary') or {}
  return summary.get('round') == rounds - 1 and has_rows(folder)


def has_rows(folder: pathlib.Path) -> bool:
  """Whether a start has logged a round there."""
  path = folder / 'metrics.jsonl'
  return path.exists() and path.stat().st_size > 0


def lock(folder: pathlib.Path) -> contextlib.ExitStack:
  """Lock a folder against other runs until the result is closed.

  The kernel unlocks when the first process of the run ends, even by SIGKILL.
  Raises WorkdirError if another process uses the folder.
  """
  with contextlib.ExitStack() as locked:
    with in_all_processes(folder):
      if jax.process_index() == 0:
        _lock(folder / 'lock', locked)
    return locked.pop_all()


@contextlib.contextmanager
def in_all_processes(folder: pathlib.Path) -> Iterator[None]:
  """Raise the WorkdirError of one process in all of them."""
  error = None
  try:
    yield
  except WorkdirError as e:
    error = e
  if peers.any_process(error is not None):
    raise error or WorkdirError(f'Another process refuses {folder}.')


def _lock(path: pathlib.Path, locked: contextlib.ExitStack):
  try:
    file = locked.enter_context(open(path, 'a+'))
  except OSError as e:
    raise WorkdirError(f'{path.parent} cannot be written: {e}.') from e
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not path.exists() or not os.path.samefile(path, file.fileno()):
      raise BlockingIOError  # the previous run has just removed the file
    file.truncate(0)
    file.write(f'process {os.getpid()} on {platform.node()}')
    file.flush()
    locked.callback(path.unlink, missing_ok=True)
  except BlockingIOError as e:
    user = path.read_text() if path.exists() else 'another process'
    raise WorkdirError(
      f'{path.parent} is in use by {user}. End it, or set another workdir.'
    ) from e
  except OSError as e:  # some network drives have no locks
    warnings.warn(f'{path.parent} cannot be locked: {e}.', stacklevel=4)


class Workdir:
  """The files of a run, written by the first process only.

  config.json has the config, problem.json the record of `same_run.problem_of`,
  tokenizer.json the vocabulary of texts, metrics.jsonl a JSON object a logged
  round, and summary.json final numbers, versions and devices.

  Raises WorkdirError if the folder holds another run, or is in use.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    config: config_lib.Config,
    problem: same_run.Record,
  ):
    self.folder = _make(folder)
    self.metrics = self.folder / 'metrics.jsonl'
    self._writes = jax.process_index() == 0
    self._file, self._config, self._problem = None, config, problem
    with lock(self.folder) as locked:  # nobody else writes what is compared
      with in_all_processes(self.folder):
        same_run.check_run(self.folder, config, problem)
      self._lock = locked.pop_all()
    self.finished = is_finished(self.folder, config.rounds)

  def begin(self, done: int, tokenizer: str | None = None) -> Row:
    """Write config and problem, and cut metrics after the checkpoint.

    A finished run stays as it is. Returns the last row of metrics, or {}.
    """
    rows = metrics.read_metrics(self.metrics)
    rows = [row for row in rows if row['round'] < done]
    last, all_done = rows[-1] if rows else {}, done == self._config.rounds
    if (self.finished and all_done) or not self._writes:
      return last
    problem = self._problem
    if same_run.has_secret(self._config):
      secret = same_run.secret_of(self.folder)
      assert secret is not None, 'the secret is drawn first'
      problem = same_run.keyed(problem, secret)
    # Before any round: no later start may release it with another problem.
    files.write(self.folder / 'problem.json', problem)
    files.write(self.folder / 'config.json', files.as_json(self._config))
    if tokenizer is not None:
      files.write(self.folder / 'tokenizer.json', tokenizer)
    files.write(self.metrics, _lines(rows))
    if not all_done:
      (self.folder / 'summary.json').unlink(missing_ok=True)
    # Unbuffered: closing would write what a full disk has refused once more.
    self._file = open(self.metrics, 'ab', buffering=0)
    return last

  def write(self, row: Row):
    """Append one row of metrics; a SaveError if not all of it is written."""
    if self._file is None:
      return
    line = (json.dumps(row) + '\n').encode()
    advice = 'Make room; the same command resumes from the last checkpoint.'
    with files.save_errors(self.metrics, advice):
      written = self._file.write(line)
      if written != len(line):
        raise OSError(f'only {written} of {len(line)} bytes')

  def summarize(self, row: Row, **more: Any):
    """Write summary.json: the last row, versions and devices."""
    if self._writes:
      about = row | more | files.measured_with()
      files.write(self.folder / 'summary.json', about)

  def close(self):
    """Close metrics.jsonl and unlocks the folder."""
    if self._file is not None:
      self._file.close()
    self._lock.close()


class Records:
  """A file of one JSON object for each finished point, in order of points.

  The file is `name`, and `number` gives the number of the point of a row.
  `problem` is None if each point has its own. `may_change` gives, of the fields
  in config.json, those that may differ.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    config: Any,
    name: str,
    number: Callable[[Row], int],
    problem: same_run.Record | None = None,
    may_change: Callable[[Mapping], Collection[str]] = lambda then: (),
  ):
    self.folder = _make(folder)
    self._config, self._problem = config, problem
    self._path = self.folder / name
    with lock(self.folder) as locked:  # nobody else writes what is compared
      # Finished points do not run again.
      free = may_change(same_run.stored_config(self.folder))
      same_run.check_config(self.folder, config, free)
      if problem is not None:
        same_run.check_problem(self.folder, problem, private=False)
      rows = metrics.read_metrics(self._path)
      self.rows = {number(row): row for row in rows}
      self._lock = locked.pop_all()

  def close(self):
    """Unlock the folder."""
    self._lock.close()

  def add(self, number: int, row: Row):
    """Add the row of a point, and write config.json and the file."""
    # Not earlier: the config.json of a refused grid would refuse the next one.
    if self._problem is not None:
      files.write(self.folder / 'problem.json', self._problem)
    files.write(self.folder / 'config.json', files.as_json(self._config))
    self.rows[number] = json.loads(json.dumps(row))
    files.write(self._path, _lines(self.rows[i] for i in sorted(self.rows)))


def _lines(rows: Iterable[Row]) -> str:
  return ''.join(json.dumps(row) + '\n' for row in rows)
