"""Plot metrics of several runs: means over seeds, with bands.

  fl-sketch plot RUN... [--x=up] [--y=test_accuracy,train_loss]
    [--labels=A,B] [--out=FILE.png]

A run is a workdir, or the folder of a sweep with all of its points. Configs
that differ in seeds alone make one line. The table of last values goes to
FILE.csv, the numbers of the figure to FILE.json.
"""

from fl_sketch.runs import config, plots

from . import begin, define

_FLAGS = define(
  x=('rounds', 'Rounds, or bytes of all clients.', list(plots.X)),
  y=([], 'Metrics, a panel each; the test accuracy, or loss, if unset.'),
  labels=([], 'Names of the lines; their folders or algorithms, if unset.'),
  out=('runs/plot.png', 'Where the figure goes.'),
)


def main(argv):
  """Draw the figure; print the last values and where it is."""
  begin(argv[:1])
  options = {'x': _FLAGS.x, 'y': _FLAGS.y, 'labels': _FLAGS.labels}
  with config.checked():
    _, table = plots.plot(argv[1:], _FLAGS.out, **options)
  print(table, _FLAGS.out, sep='')
