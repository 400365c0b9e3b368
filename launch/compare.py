"""Compares every algorithm on MNIST at matched uplink bytes.

  fl-sketch compare [--data_dir=DIR] [--workdir=DIR]

Tunes each method of the config mnist_comparison on an MLP, runs its best
point with LeNet-5 over three seeds, and writes MNIST-Comparison.json, .md and
-1.png. The same command resumes with the unfinished points.
`fl-sketch reproduce Trained-Digits` and its like compare compressors on models
that are trained to a mark.
"""

import pathlib

from absl import app, flags
from fl_sketch.training import devices

from . import begin, configs, define_folders, errors, neighbour, parse_flags

comparison = neighbour('papers.comparison.algorithms')
pages = neighbour('papers.common.pages')
results = neighbour('papers.common.results')
study = neighbour('papers.common.study')
workspace = neighbour('papers.common.workspace')

_COMPARISON = configs.load('mnist_comparison')
_WORKDIR, _DATA_DIR = define_folders('runs/comparison')
_NAMES = flags.DEFINE_list('names', list(_COMPARISON.methods(32)), 'Methods.')
_PARTITIONS = flags.DEFINE_list(
  'partitions', list(_COMPARISON.PARTITIONS), 'The partitions of the data.'
)


def main(argv):
  """Runs the comparison and prints its table."""
  begin(argv)
  devices.start(cpu_devices=devices.cores())
  config_of = lambda *parts: _COMPARISON.get_config(','.join(parts)).to_dict()
  chosen = config_of, _NAMES.value, _PARTITIONS.value, ('mlp', 'lenet5')
  run = lambda ws: comparison.report(comparison.outcomes(ws, *chosen))
  folder = pathlib.Path(str(_WORKDIR.value)).resolve()
  ws = workspace.Workspace(folder, data_dir=_DATA_DIR.value)
  source = 'This project, LeNet-5 on MNIST'
  title = 'Every algorithm at one bit a parameter'
  with errors.refused():
    own = study.Study(comparison.NAME, title, source, run, 0)
    made = results.run(own, ws, comparison.COMMAND)
  pages.write([made], folder)
  print(pages.text(made), folder)


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
