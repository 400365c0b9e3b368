"""Train the run of a config, store it in a workdir, sweep and plot runs.

`config` and `fields` are the settings of a run; `problem`, `method` and `build`
make data, model, algorithm and guarantee of it, an `experiment`. `loop` trains
one run in a `workdir`, `sweep` many points of one config. `metrics`, `figures`
and `plots` show them; `plan` and `compression` predict bytes, memory and time;
`audit` and `one_run_audit` attack what a config claims.
"""

from fl_sketch.runs.build import (
  Experiment,
  OwnProblem,
  account,
  assemble,
  build,
  reconfigured,
)
from fl_sketch.runs.figures import new_figure
from fl_sketch.runs.log import DivergedError
from fl_sketch.runs.loop import Result, train
from fl_sketch.runs.method import algorithm_options, hyper_of
from fl_sketch.runs.metrics import (
  as_array,
  read_metrics,
  summary_line,
  total_bytes,
)
from fl_sketch.runs.plots import draw_run, plot

__all__ = [
  'build', 'assemble', 'train', 'Result', 'Experiment', 'OwnProblem',
  'reconfigured', 'account', 'plot', 'draw_run', 'new_figure', 'read_metrics',
  'as_array', 'summary_line', 'total_bytes', 'hyper_of', 'algorithm_options',
  'DivergedError',
]  # fmt: skip
