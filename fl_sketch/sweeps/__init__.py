"""Run many points of one config, vmapped where they share a program."""

from fl_sketch.sweeps.grid import Point, points
from fl_sketch.sweeps.sweep import groups, run

__all__ = ['Point', 'groups', 'points', 'run']
