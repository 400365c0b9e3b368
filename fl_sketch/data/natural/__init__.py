"""Data with natural clients: readers of published files, and what is learned.

`importing` writes the clients of files to a store; `kinds` has the data sets by
name, and finds the layout of files; `tff`, `fedjax`, `leaf`, `pfl`, `tables`,
`folders` and `plays` read one layout each as `records`; `tasks` make arrays of
them, and `spool` orders them.
"""

from fl_sketch.utils import lazy

__all__ = [
  'examples', 'fedjax', 'folders', 'importing', 'kinds', 'leaf', 'pfl',
  'plays', 'records', 'spool', 'tables', 'tasks', 'tff',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
