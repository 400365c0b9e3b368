"""Numbers and figures of the metrics of runs; names load on first use."""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy, renamed

if TYPE_CHECKING:
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

__getattr__ = renamed.attributes(
  __name__,
  lazy.attach(
    __name__, over_seeds=('draw_run', 'plot'),
    metrics=('as_array', 'read_metrics', 'summary_line', 'total_bytes'),
    style=('new_axes', 'new_figure', 'plain_ticks'),
  ),
  sentence='summary_line',
)  # fmt: skip
