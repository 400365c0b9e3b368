"""Keyed linear sketches of trees, by name or by factory.

An operator is unbiased if E desketch(sketch(x)) = x over keys, for every x.

In this package a factory hides the module of its name, so that such a module
holds its factory alone. What several modules or tests use stands in modules of
other names (`hadamard`, `blocks`, `verification`, ...).

To add an operator: write its file, export its factory here by an import, a line
of `__all__` and one of `_KINDS`, and add it to tests/support/operators.py, the
list over which all laws are tested.
"""

from collections.abc import Callable
import functools
import inspect
from typing import Any

from fl_sketch.sketches.ams import ams
from fl_sketch.sketches.base import Properties, Sketch, properties
from fl_sketch.sketches.block_cyclic import block_cyclic
from fl_sketch.sketches.combinators import composed, scaled, stacked
from fl_sketch.sketches.count_sketch import count_sketch
from fl_sketch.sketches.dct import dct
from fl_sketch.sketches.estimators import (
  heaprix,
  heavy_support,
  heavymix,
  l2_norm,
  put,
  take,
)
from fl_sketch.sketches.explicit import from_hashes, from_matrix
from fl_sketch.sketches.gaussian import gaussian
from fl_sketch.sketches.hadamard import fwht
from fl_sketch.sketches.identity import identity
from fl_sketch.sketches.layerwise import allocate_by_norm, layerwise
from fl_sketch.sketches.sparse_embedding import sparse_embedding
from fl_sketch.sketches.srft import srft
from fl_sketch.sketches.srht import srht
from fl_sketch.sketches.uniform_sampling import uniform_sampling
from fl_sketch.sketches.verification import Verification, verify

__all__ = [
  'Properties', 'Sketch', 'Verification', 'allocate_by_norm', 'ams',
  'block_cyclic', 'composed', 'count_sketch', 'dct', 'from_hashes',
  'from_matrix', 'fwht', 'gaussian', 'heaprix', 'heavy_support', 'heavymix',
  'identity', 'l2_norm', 'layerwise', 'make', 'options', 'properties', 'put',
  'scaled', 'sparse_embedding', 'srft', 'srht', 'stacked', 'take',
  'uniform_sampling', 'verify',
]  # fmt: skip


def _layerwise(
  factory: str, size: int, allocation: str = 'proportional'
) -> Sketch:
  """`layerwise` of an operator that a config names."""
  if factory not in _BY_SIZE:
    raise ValueError(f'Expected {factory=} in {tuple(_BY_SIZE)}.')
  return layerwise(_BY_SIZE[factory], size, allocation)


_SIZED = ams, block_cyclic, dct, gaussian, srft, srht, uniform_sampling
_BY_SIZE: dict[str, Callable[[int], Sketch]] = {f.__name__: f for f in _SIZED}
_KINDS: dict[str, Callable[..., Sketch]] = _BY_SIZE | {
  'count_sketch': count_sketch,
  'identity': identity,
  'layerwise': _layerwise,
  'sparse_embedding_1': functools.partial(sparse_embedding, kind='I'),
  'sparse_embedding_2': functools.partial(sparse_embedding, kind='II'),
}


def options() -> dict[str, type]:
  """The options of all kinds of `make`, with their types.

  >>> options()['size']
  <class 'int'>
  """
  types: dict[str, type] = {'kind': str}
  for factory in _KINDS.values():
    parameters = inspect.signature(factory).parameters
    types |= {option: p.annotation for option, p in parameters.items()}
  return types


def make(kind: str, **options: Any) -> Sketch:
  """Builds the operator that a config names.

  >>> op = make('count_sketch', rows=2, cols=3, combine='mean')
  >>> op.like({'w': [0.5] * 8}).shape
  (2, 3)

  Args:
    kind: the name of an operator's factory. `sparse_embedding` has one for each
      of its kinds; 'layerwise' has the options factory (the name of an operator
      that takes a size), size and allocation.
    **options: the arguments of that factory.

  Returns:
    A `Sketch`.

  Raises:
    ValueError: unknown kind, or options that the factory does not take; the
      message lists the known ones.
  """
  if kind not in _KINDS:
    raise ValueError(f'Expected {kind=} in {tuple(_KINDS)}.')
  signature = inspect.signature(_KINDS[kind])
  try:
    signature.bind(**options)
  except TypeError as error:
    allowed = tuple(signature.parameters)
    message = f'Expected {kind=} with options {allowed}: {error}.'
    raise ValueError(message) from None
  return _KINDS[kind](**options)
