"""Non-linear payload codecs: quantisation and sparsification of one tree.

A codec is two pure functions, `encode` and `decode`. What `encode` returns is
sent, and its bytes are counted. Numbers are read as float32, except by
`identity`. A zero tree decodes to zeros (except by `shared_sign`), and a NaN to
NaN in all numbers that share its scale.

Error feedback needs a `contraction`: around an unbiased codec with omega > 1
the residual grows, so wrap that codec in `contract`.
"""

from typing import Any

from fl_sketch.codecs.base import Codec, contract, identity
from fl_sketch.codecs.quantized import (
  bfloat16,
  int4,
  int8,
  qsgd,
  shared_sign,
  sign,
)
from fl_sketch.codecs.rotated import eden
from fl_sketch.codecs.sparse import (
  chunked_top_k,
  dct_blocks,
  dct_top_k,
  quantized_top_k,
  rand_k,
  top_k,
)
from fl_sketch.utils import fields, registry

__all__ = [
  'make', 'sign', 'eden', 'qsgd', 'bfloat16', 'int8', 'int4', 'top_k',
  'chunked_top_k', 'dct_top_k', 'dct_blocks', 'quantized_top_k', 'rand_k',
  'shared_sign', 'identity', 'contract', 'Codec', 'register',
  'describe', 'REGISTRY',
]  # fmt: skip

REGISTRY = registry.Registry('codec', shared={'contract': False})
register, describe = REGISTRY.register, REGISTRY.describe
for _factory in (
  identity, top_k, rand_k, qsgd, sign, quantized_top_k, bfloat16, int8, int4,
  eden, chunked_top_k, dct_top_k, dct_blocks,
):  # fmt: skip
  register(_factory)
register(shared_sign, hyper=('bound',))


def make(kind: str, **options: Any) -> Codec:
  """Build the codec that a config names, by a factory and its options.

  >>> make('rand_k', k=2, contract=True)
  contract(codec=rand_k(k=2))

  The option `contract` wraps the codec in `contract`. Raises ValueError for an
  unknown kind or option.
  """
  wrap = options.pop('contract', False)
  fields.check_option('contract', wrap, bool)
  codec = REGISTRY.make(kind, **options)
  return contract(codec) if wrap else codec
