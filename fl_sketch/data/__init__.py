"""Datasets, who holds which samples, who takes part, and in which batches."""

from fl_sketch.data import batches
from fl_sketch.data import cohorts
from fl_sketch.data import partitions
from fl_sketch.data.partitions import Partition
from fl_sketch.data.partitions import partition
from fl_sketch.data.sources import DataError
from fl_sketch.data.sources import Dataset
from fl_sketch.data.sources import load
from fl_sketch.data.synthetic import quadratics

__all__ = [
  'DataError',
  'Dataset',
  'Partition',
  'batches',
  'cohorts',
  'load',
  'partition',
  'partitions',
  'quadratics',
]
