"""Keep the parameters of the best evaluation of a run."""

from collections.abc import Iterable
import math
import pathlib
from typing import Any

from fl_sketch.runs import client_state, metrics, saved_params
from fl_sketch.utils.types import Params
import jax


class Best:
  """The folder best/: parameters at the best value of a metric, by rounds done.

  The best before every checkpoint stays, for a run that resumes from there.
  """

  def __init__(
    self, folder: pathlib.Path, metric: str | None, checkpoints: Iterable[int]
  ):
    self._folder = folder / 'best'
    self._metric, self._better = metrics.ranked_by(metric or '')
    self._rounds: list[int] = []  # at which the metric was better than before
    self._value = math.nan
    self._writes = metric is not None and jax.process_index() == 0
    if self._writes:
      for row in metrics.read_metrics(folder):
        self._note(row)
      self.keep_only(checkpoints)

  def consider(self, row: metrics.Row, params: Params):
    """Write the parameters of a row that was just logged, if it is the best."""
    if self._writes and self._note(row):
      saved_params.write(self._folder, self._rounds[-1], params)

  def keep_only(self, checkpoints: Iterable[int]):
    """Delete what is the best neither now nor at one of these checkpoints."""
    if self._writes:
      best = {*self._rounds[-1:]}
      for done in checkpoints:
        best.update([rounds for rounds in self._rounds if rounds <= done][-1:])
      client_state.keep_only(self._folder, best)

  def summary(self) -> dict[str, Any]:
    """Return the metric, its best value and when it was, for summary.json."""
    if not self._rounds:
      return {}
    best = {'metric': self._metric, 'value': self._value}
    return {'best': best | {'rounds_done': self._rounds[-1]}}

  def _note(self, row: metrics.Row) -> bool:
    """Whether the metric of a row is better than in all before it."""
    value = row.get(self._metric)
    if value is None or math.isnan(value):
      return False
    if self._rounds and self._better(self._value, value) == self._value:
      return False
    self._rounds.append(row['round'] + 1)
    self._value = value
    return True
