"""Numbers and figures of the metrics of runs."""

from fl_sketch.reporting import label_distribution
from fl_sketch.reporting.metrics import (
  as_array,
  read_metrics,
  summary_line,
  total_bytes,
)
from fl_sketch.reporting.over_seeds import draw_run, plot
from fl_sketch.reporting.style import new_axes, new_figure, plain_ticks

__all__ = [
  'as_array', 'draw_run', 'label_distribution', 'new_axes', 'new_figure',
  'plain_ticks', 'plot', 'read_metrics', 'summary_line', 'total_bytes',
]  # fmt: skip
