"""Datasets, partitions over clients, cohorts, and batches."""

from fl_sketch.utils import lazy

__all__ = [
  'availability', 'batches', 'cohorts', 'describe', 'from_clients', 'natural',
  'own_arrays', 'partitions', 'ragged', 'register', 'registry', 'sources',
  'store', 'store_writer', 'synthetic', 'text', 'tokenization',
]  # fmt: skip

__getattr__ = lazy.attach(
  __name__, registry=['describe', 'from_clients', 'register']
)
