"""Measure speed as ratios of medians taken in one run."""

from absl import flags

from . import neighbour

_PROGRAM = neighbour('benchmarks.__main__')
__doc__ = _PROGRAM.__doc__
flags.adopt_module_key_flags(_PROGRAM)


def main(argv):
  """Run `python -m benchmarks`, whose flags are those of this command."""
  _PROGRAM.main(argv)
