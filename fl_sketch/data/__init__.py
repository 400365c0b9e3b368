"""Datasets, partitions over clients, cohorts, and batches."""

from fl_sketch.data import (
  availability,
  batches,
  cohorts,
  natural,
  own_arrays,
  partitions,
  ragged,
  registry,
  sources,
  store,
  synthetic,
  text,
  tokenization,
)
from fl_sketch.data.registry import describe, from_clients, register

__all__ = [
  'availability', 'batches', 'cohorts', 'describe', 'from_clients', 'natural',
  'own_arrays', 'partitions', 'ragged', 'register', 'registry', 'sources',
  'store', 'synthetic', 'text', 'tokenization',
]  # fmt: skip
