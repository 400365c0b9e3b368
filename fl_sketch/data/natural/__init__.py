"""Data with natural clients: readers of published files, and their tasks."""

from fl_sketch.data.natural import grouping, importing, readers, tasks
from fl_sketch.data.natural.importing import import_clients, import_data

__all__ = [
  'grouping', 'import_clients', 'import_data', 'importing', 'readers', 'tasks',
]  # fmt: skip
