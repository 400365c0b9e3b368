"""Copies the logged rows of a run to TensorBoard and to Weights & Biases.

Neither package is imported before `opened` names it, and neither is sent
anything: both write files below the workdir.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import os
import pathlib
from typing import Any

from fl_sketch.experiment import config as config_lib
from fl_sketch.utils import extras, files


@contextlib.contextmanager
def opened(
  names: Sequence[str], folder: str | os.PathLike, config: config_lib.Config
) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
  """Opens sinks for `training.train(on_row=...)`, and closes them at the end.

  A sink writes its first file with the first row, in the one process that has
  rows. A run that is started again repeats the rounds after its last
  checkpoint: TensorBoard drops what it had of them, and Weights & Biases gets
  another run for each start, in one group.

  Yields:
    A function of each logged row, or None for no names.

  Raises:
    ConfigError: there is no sink of that name.
    MissingExtraError: its package is not installed.
  """
  if not {*names} <= {*NAMES}:
    raise config_lib.ConfigError(
      f'log_to={names} has an unknown sink. Set names of {NAMES}.'
    )
  with contextlib.ExitStack() as stack:
    sinks = [_SINKS[name](pathlib.Path(folder), config) for name in names]
    for sink in sinks:
      stack.callback(sink.close)

    def on_row(row: Mapping[str, Any]):
      # Epsilon without noise is 'inf'.
      numbers = {name: float(value) for name, value in row.items()}
      for sink in sinks:
        sink.add(row['round'], numbers)

    yield on_row if sinks else None


class _TensorBoard:
  """Writes one scalar a metric into FOLDER/tensorboard."""

  def __init__(self, folder: pathlib.Path, config: config_lib.Config):
    with extras.needed('tensorboard'):
      import tensorboardX
    self._writer = None
    self._open = lambda first: tensorboardX.SummaryWriter(
      logdir=str(folder / 'tensorboard'), purge_step=first
    )

  def add(self, number: int, numbers: dict[str, float]):
    self._writer = writer = self._writer or self._open(number)
    for name, value in numbers.items():
      writer.add_scalar(name, value, number)
    writer.flush()  # what a kill loses is not logged again after a checkpoint

  def close(self):
    if self._writer is not None:
      self._writer.close()


class _WandB:
  """Writes an offline run below FOLDER/wandb, for `wandb sync`."""

  def __init__(self, folder: pathlib.Path, config: config_lib.Config):
    # Read when the package and its service start.
    os.environ.setdefault('WANDB_CACHE_DIR', str(folder / 'wandb'))
    os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
    with extras.needed('wandb'):
      import wandb
    self._run = None
    self._open = lambda: wandb.init(
      project='fl_sketch',
      name=folder.absolute().name,
      group=folder.absolute().name,
      dir=folder,
      config=files.as_json(config),
      settings=wandb.Settings(
        mode='offline', console='off', silent=True, disable_git=True
      ),
    )

  def add(self, number: int, numbers: dict[str, float]):
    self._run = run = self._run or self._open()
    run.log(numbers, step=number)

  def close(self):
    if self._run is not None:
      self._run.finish()


_SINKS = {'tensorboard': _TensorBoard, 'wandb': _WandB}
NAMES = tuple(_SINKS)
