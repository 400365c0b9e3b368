"""Measures speed as ratios of medians taken in one run.

The options stand in benchmarks/__main__.py; `fl-sketch bench --help`.
"""

from absl import app, flags

from . import neighbour

_BENCHMARKS = neighbour('benchmarks.__main__')
flags.adopt_module_key_flags(_BENCHMARKS)


def main(argv):
  """Runs one benchmark, or one worker process of it."""
  _BENCHMARKS.main(argv)


if __name__ == '__main__':
  app.run(main)
