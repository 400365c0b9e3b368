"""Runs many points of one config, vmapped where they share a program.

`points` lists the points of a grid or of random draws and `run` trains them;
`report` and `lines` make tables and figures of the results.
"""

from fl_sketch.sweeps.grid import Point, points
from fl_sketch.sweeps.sweep import groups, run

__all__ = ['Point', 'groups', 'points', 'run']
