"""Rows of the finished points of a grid, from which a stopped grid resumes."""

from collections.abc import Callable
import json
import os
import pathlib
from typing import Any

from fl_sketch.reporting import metrics
from fl_sketch.training import workdir
from fl_sketch.utils import files

Row = dict[str, Any]


class Records:
  """A file with one JSON object a finished point, in the order of the points.

  Args:
    folder: made if it is not there.
    config: of the grid; must be that of the config.json that is there.
    name: of the file.
    number: row -> the number of its point.

  Attributes:
    folder: as a path.
    rows: of the finished points, by number.

  Raises:
    WorkdirError: config.json is another config; the message names the fields.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    config: Any,
    name: str,
    number: Callable[[Row], int],
  ):
    self.folder = pathlib.Path(folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    # Finished points do not run again: no field may change.
    workdir.check(self.folder, config, may_change=())
    self._config, self._path = config, self.folder / name
    rows = metrics.read_metrics(self._path) if self._path.exists() else []
    self.rows = {number(row): row for row in rows}

  def add(self, number: int, row: Row):
    """Adds the row of a point, and writes config.json and the file."""
    # Not before: a grid that is refused leaves nothing to disagree with.
    files.replace(self.folder / 'config.json', files.as_json(self._config))
    self.rows[number] = json.loads(json.dumps(row))
    lines = [json.dumps(self.rows[i]) + '\n' for i in sorted(self.rows)]
    files.replace(self._path, ''.join(lines))
