"""Many runs of one config, vmapped where their programs agree.

`points` lists the points of a grid or of random draws and `run` plays them;
`report`, `lines` and `comparison` make tables and figures of the results.
"""

from fl_sketch.sweeps.sweep import Point, groups, points, run

__all__ = [
  'Point', 'groups', 'points', 'run',
]  # fmt: skip
