"""Compares the config and the problem of a run with those of its folder."""

from collections.abc import Collection, Iterator
import contextlib
import json
import os
import pathlib
from typing import Any
import warnings

from fl_sketch.experiment import config as config_lib
from fl_sketch.reporting import metrics
from fl_sketch.rounds import processes
from fl_sketch.training import identity
from fl_sketch.utils import files

# Files of a run that has begun; the last one is the model of a checkpoint.
_BEGUN = 'config.json', 'metrics.jsonl', 'checkpoints/*/arrays'


class WorkdirError(ValueError):
  """The folder holds another run, is in use, or cannot be written."""


def make(folder: str | os.PathLike) -> pathlib.Path:
  """Makes a folder where there is none.

  Raises:
    WorkdirError: it cannot be made.
  """
  folder = pathlib.Path(folder)
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise WorkdirError(f'{folder} cannot be made: {e}.') from e
  return folder


@contextlib.contextmanager
def in_all_processes(folder: pathlib.Path) -> Iterator[None]:
  """Raises the WorkdirError of one process in all of them."""
  error = None
  try:
    yield
  except WorkdirError as e:
    error = e
  if processes.any_process(error is not None):
    raise error or WorkdirError(f'Another process refuses {folder}.')


def check_run(
  folder: pathlib.Path, config: config_lib.Config, problem: identity.Record
):
  """Compares the config and the problem of a run with those of its folder.

  Raises:
    WorkdirError: one of them differs; see `check` and `check_problem`.
  """
  check(folder, config, resumable(config))
  # Noise of a public seed protects nothing.
  private = config.is_private and config.noise_seed is None
  check_problem(folder, problem, private=private)


def check(folder: pathlib.Path, config: Any, may_change: Collection[str]):
  """Compares a config with the config.json of a folder, where there is one.

  Args:
    folder: with or without results.
    config: of the new results, a dataclass whose fields all have a default.
    may_change: fields that may differ.

  Raises:
    WorkdirError: other fields differ; the message names them.
  """
  if (old := read(folder / 'config.json', 'a config')) is None:
    return
  fields = files.as_json(config)
  if moved := sorted(old.keys() & config_lib.MOVED.keys() - fields.keys()):
    places = ', '.join(f'{k} is {config_lib.MOVED[k]} now' for k in moved)
    raise WorkdirError(f'{folder} is of an older version: {places}.')
  old = files.as_json(type(config)()) | old  # an older version has fewer fields
  changed = [
    f'{name}: {old.get(name)!r} there, {fields.get(name)!r} here'
    for name in sorted({*old, *fields} - {*may_change})
    if old.get(name) != fields.get(name)
  ]
  if changed:
    raise WorkdirError(
      f'{folder} holds a run of another config '
      f'({"; ".join(changed)}). Name another workdir.'
    )


def resumable(config: config_lib.Config) -> set[str]:
  """Returns the fields that may differ when a run is resumed."""
  fields: set[str] = set(config_lib.RESUMABLE)
  scheduled = config.final_server_lr, config.client_schedule, config.epsilon
  if any(x is not None for x in scheduled):
    # The learning rate decays, and noise is calibrated, over all rounds.
    fields.remove('rounds')
  if config.noise == 'banded':  # so is its grid made for them
    fields.discard('rounds')
  if config.is_private:
    # Released rounds must not be played again with other rounding.
    fields.remove('lanes_per_step')
  return fields


def check_problem(
  folder: pathlib.Path, problem: identity.Record, *, private: bool
):
  """Compares a problem with the problem.json of a folder that has results.

  Warns of another version of fl_sketch or JAX, unless it is refused.

  Args:
    folder: with or without results.
    problem: of the new results.
    private: see `identity.compare`.

  Raises:
    WorkdirError: the problem differs, or the folder has results without one;
      the message names what differs.
  """
  old = read(folder / 'problem.json', 'a problem')
  if old is None:
    if any(any(folder.glob(name)) for name in _BEGUN):
      raise WorkdirError(
        f'{folder} has no problem.json: an older version began it, or the file '
        'is lost, so that model and data cannot be compared. Name another '
        'workdir.'
      )
    return
  refused, warned = identity.compare(old, problem, private=private)
  if refused:
    why = ': some rounds would be released twice' if private else ''
    raise WorkdirError(
      f'{folder} holds a run of another problem ({"; ".join(refused)}){why}. '
      'Name another workdir.'
    )
  if warned:
    warnings.warn(
      f'{folder} was begun by other code ({"; ".join(warned)}): its numbers '
      'may be others.',
      stacklevel=3,
    )


def is_finished(folder: str | os.PathLike, rounds: int) -> bool:
  """Whether the folder has rows and the summary of a run of so many rounds."""
  folder = pathlib.Path(folder)
  summary = read(folder / 'summary.json', 'a summary') or {}
  path = folder / 'metrics.jsonl'
  has_rows = path.exists() and path.stat().st_size > 0
  return has_rows and summary.get('round') == rounds - 1


def last_row(
  folder: str | os.PathLike, config: config_lib.Config, problem: identity.Record
) -> dict[str, Any]:
  """Returns the last row of a finished run; writes nothing.

  Raises:
    WorkdirError: it is that of another config or another problem.
  """
  folder = pathlib.Path(folder)
  check_run(folder, config, problem)
  return metrics.read_metrics(folder / 'metrics.jsonl')[-1]


def read(path: pathlib.Path, what: str) -> dict[str, Any] | None:
  """Reads a file of JSON; None if there is none."""
  try:
    return dict(json.loads(path.read_text())) if path.exists() else None
  except OSError as e:
    raise WorkdirError(f'{path} cannot be read: {e}.') from e
  except (ValueError, TypeError) as e:
    raise WorkdirError(f'{path} is not {what}: {e}.') from e
