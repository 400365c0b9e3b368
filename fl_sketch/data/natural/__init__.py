"""Data with natural clients: readers of published files, and their tasks."""

from fl_sketch.utils import lazy

__all__ = [
  'importing', 'readers', 'records', 'tasks', 'tff',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
