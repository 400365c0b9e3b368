"""Data with natural clients: readers of published files, and their tasks."""

from fl_sketch.data.natural.importing import import_clients, import_data

__all__ = ['import_clients', 'import_data']
