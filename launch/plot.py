"""Plots metrics of several runs: means over seeds, with bands.

  fl-sketch plot RUN... [--x=up] [--y=test_accuracy,train_loss]
    [--labels=A,B] [--out=FILE.png]

A run is a workdir, or the folder of a sweep with all of its points. Configs
that differ in seeds alone make one line. The table of last values goes to
FILE.csv, the numbers of the figure to FILE.json.
"""

from absl import app
from fl_sketch.experiment import config
from fl_sketch.reporting import over_seeds

from . import begin, define, errors, parse_flags

_OF_BAND = 'The 95 % t-interval of the mean over seeds, or the range of values.'
_FLAGS = define(
  x=('rounds', 'Rounds, or bytes of all clients.', list(over_seeds.X)),
  band=('interval', _OF_BAND, list(over_seeds.BANDS)),
  y=([], 'Metrics, a panel each; the test accuracy, or loss, if unset.'),
  labels=([], 'Names of the lines; their folders or algorithms, if unset.'),
  out=('runs/plot.png', 'Where the figure goes.'),
)


def main(argv):
  """Draw the figure; print the last values and where it is."""
  begin(argv[:1])
  options, out = (_FLAGS.x, _FLAGS.y, _FLAGS.band, _FLAGS.labels), _FLAGS.out
  with errors.refused(), config.checked():
    _, table = over_seeds.plot_and_table(argv[1:], out, *options)
  print(table, out, sep='')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
