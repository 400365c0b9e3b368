"""Measure speed as ratios of medians taken in one run."""

import runpy

_PACKAGE = f'{__package__}'.removesuffix('launch') + 'benchmarks'


def main():
  """Run `python -m benchmarks`, whose flags are those of this command."""
  runpy.run_module(_PACKAGE, run_name='__main__', alter_sys=True)


if __name__ == '__main__':
  main()
