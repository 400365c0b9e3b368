"""Copy the logged rows of a run to TensorBoard and to Weights & Biases.

Both write files below the workdir, and send nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import os
import pathlib
from typing import Any

from fl_sketch.runs import config as config_lib
from fl_sketch.utils import extras, files


@contextlib.contextmanager
def opened(
  names: Sequence[str], folder: str | os.PathLike, config: config_lib.Config
) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
  """Open sinks for `runs.train(on_row=...)`, and close them at the end.

  Yields a function of each logged row, or None for no names. A resumed run
  repeats the rounds after its last checkpoint: TensorBoard drops what it had of
  them, and Weights & Biases gets another run for each start, in one group.

  Raises ConfigError if there is no sink of that name, and MissingExtraError if
  its package is not installed.
  """
  if not {*names} <= {*NAMES}:
    raise config_lib.ConfigError(f'log_to={names} must be of {NAMES}.')
  with contextlib.ExitStack() as stack:
    sinks = [_SINKS[x](pathlib.Path(folder), config, stack) for x in names]

    def on_row(row: Mapping[str, Any]):
      # Epsilon without noise is 'inf'.
      numbers = {name: float(value) for name, value in row.items()}
      for add in sinks:
        add(row['round'], numbers)

    yield on_row if sinks else None


def _tensorboard(folder, config, stack):
  with extras.needed('tensorboard'):
    import tensorboardX
  writer: Any = None

  def add(number, numbers):
    nonlocal writer
    if writer is None:
      path = str(folder / 'tensorboard')
      writer = tensorboardX.SummaryWriter(path, purge_step=number)
      stack.callback(writer.close)
    for name, value in numbers.items():
      writer.add_scalar(name, value, number)
    writer.flush()  # what a kill loses is not logged again after a checkpoint

  return add


def _wandb(folder, config, stack):
  """Write an offline run below FOLDER/wandb, for `wandb sync`."""
  # Read when the package and its service start.
  os.environ.setdefault('WANDB_CACHE_DIR', str(folder / 'wandb'))
  os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
  with extras.needed('wandb'):
    import wandb
  quiet: Any = {'console': 'off', 'silent': True, 'disable_git': True}
  quiet = wandb.Settings(mode='offline', **quiet)
  run: Any = None

  def add(number, numbers):
    nonlocal run
    if run is None:
      name = folder.absolute().name
      about = {'name': name, 'group': name, 'config': files.as_json(config)}
      run = wandb.init(project='fl_sketch', dir=folder, settings=quiet, **about)
      stack.callback(run.finish)
    run.log(numbers, step=number)

  return add


_SINKS = {'tensorboard': _tensorboard, 'wandb': _wandb}
NAMES = tuple(_SINKS)
