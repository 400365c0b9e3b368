"""Registries as they were, after tests that add to them."""

import contextlib
import sys

from fl_sketch.algorithms import server_optimizers
from fl_sketch.models import losses
from fl_sketch.runs.fields import registries
from fl_sketch.utils import plugins, registry

# Modules of files, which `plugins.load` names after a package and the path.
FILES = tuple(f'{package}._' for package in plugins._PACKAGES)


@contextlib.contextmanager
def forgotten():
  """Forgets what is registered in its block, and the files that did so."""
  parts = [x for _, x in registries.REGISTRIES.values()]
  parts += [losses.REGISTRY, server_optimizers.REGISTRY]
  entries = [x._entries for x in parts]
  before = [*map(dict, entries)], {*registry.FILES}, {*sys.modules}
  try:
    yield
  finally:
    for now, then in zip(entries, before[0], strict=True):
      now.clear()
      now.update(then)
    registry.FILES.intersection_update(before[1])
    for name in {*sys.modules} - before[2]:
      if name.startswith(FILES):
        del sys.modules[name]
