"""Data with natural clients: readers of published files, and their tasks."""

from fl_sketch.data.natural import importing, readers, records, tasks, tff

__all__ = ['importing', 'readers', 'records', 'tasks', 'tff']
