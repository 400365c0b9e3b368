"""Run every point of a config's `sweep`: a grid, or random draws.

  fl-sketch sweep digits_sweep [--workdir=DIR]

The command line can sweep any field of any config:
--config.sweep.client_lr='(0.1, 0.3)'. Started again with the same workdir it
resumes with the points that are not finished.
"""

import pathlib

from fl_sketch.runs import devices, sweep, sweep_report

from . import QUIET, begin, configs, define, define_folders

_CONFIG = configs.define_flag()
define_folders(unset='runs/sweep_CONFIG')
_FLAGS = define(
  points_per_program=(int, 'Points at once; 1 on a CPU, else what fits.'),
  quiet=QUIET,
)
_SHOWN = 22  # lines of the table


def main(argv):
  """Run the sweep and print its settings, best first."""
  begin(argv)
  c, folder = _CONFIG.value, _FLAGS.workdir or configs.workdir('sweep_')
  devices.start(cpu_devices=min(devices.cores(), c.cohort))
  options = {'points_per_program': _FLAGS.points_per_program}
  options |= {'data_dir': _FLAGS.data_dir}
  rows = sweep.run(configs.fields(), folder, **options)
  table = (pathlib.Path(folder) / 'table.md').read_text().splitlines()
  if not _FLAGS.quiet:
    print(*table[:_SHOWN], sep='\n')
  print(sweep_report.summary_line(rows), folder)
