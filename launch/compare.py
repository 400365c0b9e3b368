"""Compares every algorithm on MNIST at matched uplink bytes.

  fl-sketch compare [--data_dir=DIR] [--workdir=DIR]

Tunes each method of configs/mnist_comparison.py on an MLP, runs its best
point with LeNet-5 over three seeds, and writes table.md and comparison.png.
Started again with the same workdir it resumes with the unfinished points.
Compressors at a hundredth of the bytes, on four tasks, are compared by
`fl-sketch reproduce One-Percent-MNIST` and its like.
"""

from absl import app, flags
from fl_sketch.training import devices

from . import begin, configs, errors, neighbour, parse_flags, refuse

comparison = neighbour('papers.comparison.algorithms')

_COMPARISON = configs.load('mnist_comparison')
_WORKDIR = flags.DEFINE_string(
  'workdir', 'runs/comparison', 'Where the results go.'
)
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
_NAMES = flags.DEFINE_list(
  'names', list(_COMPARISON.methods(32)), 'The methods.'
)
_PARTITIONS = flags.DEFINE_list(
  'partitions', list(_COMPARISON.PARTITIONS), 'The partitions of the data.'
)


def main(argv):
  """Runs the comparison and prints its table."""
  begin(argv)
  devices.start(cpu_devices=devices.cores())
  config_of = lambda *parts: _COMPARISON.get_config(','.join(parts)).to_dict()
  try:
    results = comparison.run(
      config_of,
      _NAMES.value,
      _PARTITIONS.value,
      str(_WORKDIR.value),
      models=('mlp', 'lenet5'),
      data_dir=_DATA_DIR.value,
    )
  except errors.USER_ERRORS as e:
    refuse(e)
  print(comparison.table(results), _WORKDIR.value)


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
