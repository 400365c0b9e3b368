"""Keyed linear sketches of trees, by name or by factory.

An operator is unbiased if E desketch(sketch(x)) = x over keys, for every x. One
of a `size` is linear and unbiased, and its desketch is its adjoint.
"""

import functools
from typing import Any

from fl_sketch.sketches.base import Properties, Sketch, dimension
from fl_sketch.sketches.blocks import block_cyclic
from fl_sketch.sketches.columns import count_sketch, sparse_embedding
from fl_sketch.sketches.dense import ams, gaussian
from fl_sketch.sketches.estimators import (
  gather,
  heaprix,
  heavy_support,
  heavymix,
  l2_norm,
  scatter,
)
from fl_sketch.sketches.fourier import dct, srft
from fl_sketch.sketches.hadamard import fwht
from fl_sketch.sketches.layerwise import layer_cyclic, layerwise
from fl_sketch.sketches.sampling import identity, uniform_sampling
from fl_sketch.sketches.srht import block_srht, srht
from fl_sketch.sketches.verification import Verification, verify
from fl_sketch.utils import registry

__all__ = [
  'make', 'names', 'block_cyclic', 'block_srht', 'srht', 'count_sketch',
  'sparse_embedding', 'gaussian', 'ams', 'dct', 'srft', 'uniform_sampling',
  'identity', 'layerwise', 'layer_cyclic', 'verify', 'Verification', 'heaprix',
  'heavymix', 'heavy_support', 'l2_norm', 'gather', 'scatter', 'fwht',
  'dimension', 'Sketch', 'Properties', 'register', 'describe', 'REGISTRY',
]  # fmt: skip


REGISTRY = registry.Registry('sketch', context=('kind',))
names, register, describe = REGISTRY.names, REGISTRY.register, REGISTRY.describe


def _layerwise(
  factory: str, size: int, allocation: str = 'proportional'
) -> Sketch:
  """`layerwise` of an operator that a config names."""
  sized = [name for name in names() if REGISTRY.required(name) == ['size']]
  if factory not in sized:
    raise ValueError(f'{factory=} must be one of {tuple(sized)}.')
  return layerwise(REGISTRY.entry(factory).factory, size, allocation)


for _factory in (
  ams, block_cyclic, block_srht, count_sketch, dct, gaussian, identity, srft,
  srht, uniform_sampling,
):  # fmt: skip
  register(_factory)
register(_layerwise, name='layerwise')
for _name, _kind in ('sparse_embedding_1', 'I'), ('sparse_embedding_2', 'II'):
  register(functools.partial(sparse_embedding, kind=_kind), name=_name)


def make(kind: str, **options: Any) -> Sketch:
  """Build the operator that a config names, by a factory and its arguments.

  >>> op = make('count_sketch', rows=2, cols=3, combine='mean')
  >>> op.zero_table({'w': [0.5] * 8}).shape
  (2, 3)

  'layerwise' takes the name of an operator as its option factory. Unknown kinds
  and unknown or lacking options raise ValueError.
  """
  return REGISTRY.make(kind, **options)
