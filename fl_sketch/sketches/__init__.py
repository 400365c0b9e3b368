"""Keyed linear sketches of trees, by name or by factory.

To add an operator: write its file, export its factory here by an import and a
line of `__all__`, and add it to the conformance list of tests/test_sketches.py.
"""

import inspect
from typing import Any

from fl_sketch.sketches.ams import ams
from fl_sketch.sketches.base import Properties
from fl_sketch.sketches.base import Sketch
from fl_sketch.sketches.base import properties
from fl_sketch.sketches.block_cyclic import block_cyclic
from fl_sketch.sketches.count_sketch import count_sketch
from fl_sketch.sketches.dct import dct
from fl_sketch.sketches.gaussian import gaussian
from fl_sketch.sketches.identity import identity
from fl_sketch.sketches.sparse_embedding import sparse_embedding
from fl_sketch.sketches.srft import srft
from fl_sketch.sketches.srht import srht
from fl_sketch.sketches.uniform_sampling import uniform_sampling

__all__ = [
  'Properties',
  'Sketch',
  'ams',
  'block_cyclic',
  'count_sketch',
  'dct',
  'gaussian',
  'identity',
  'make',
  'options',
  'properties',
  'sparse_embedding',
  'srft',
  'srht',
  'uniform_sampling',
]

_KINDS = (
  'ams',
  'block_cyclic',
  'count_sketch',
  'dct',
  'gaussian',
  'identity',
  'sparse_embedding',
  'srft',
  'srht',
  'uniform_sampling',
)


def options() -> dict[str, type]:
  """Every option of `make` and its type, whatever the kind.

  >>> options()['size']
  <class 'int'>
  """
  found = {'kind': str}
  for name in _KINDS:
    parameters = inspect.signature(globals()[name]).parameters
    found |= {option: p.annotation for option, p in parameters.items()}
  return found


def make(kind: str, **options: Any) -> Sketch:
  """The operator that a config names.

  >>> op = make('count_sketch', rows=2, cols=3, combine='mean')
  >>> op.like({'w': [0.5] * 8}).shape
  (2, 3)

  Args:
    kind: the name of an operator's factory.
    **options: the arguments of the factory of that name.

  Returns:
    A `Sketch`.

  Raises:
    ValueError: unknown kind, or options that the factory does not take; the
      message lists the known ones.
  """
  if kind not in _KINDS:
    raise ValueError(f'Expected {kind=} in {_KINDS}.')
  factory = globals()[kind]
  signature = inspect.signature(factory)
  known = tuple(signature.parameters)
  for option in options:
    if option not in known:
      raise ValueError(f'Expected {option=} of {kind=} in {known}.')
  try:
    signature.bind(**options)
  except TypeError as error:
    message = f'Expected {kind=} with options {known}: {error}.'
    raise ValueError(message) from None
  return factory(**options)
