"""A compressor of vectors by text, in NumPy alone."""

from collections.abc import Sequence
import functools
import math
from typing import NamedTuple

from fl_sketch.sites import (
  numpy_codecs as codecs,
  numpy_draws as draws,
  numpy_sketch as sketches,
  numpy_sparse as sparse,
)
from fl_sketch.utils import fields, registry, sizes
import numpy as np

_ROUND, _CLIENT, _CODEC = 1, 2, 0x10CA2  # folded into keys, as of the library
_SKETCHES = {'block_srht': sketches.block_srht}
# Codecs whose error is less than the vector, as error feedback needs.
_CONTRACTIONS = 'sign', 'chunked_top_k'
REGISTRY = registry.Registry('compressor')
for _factory in (
  codecs.dense, codecs.eden, codecs.sign, codecs.bfloat16, codecs.int8,
  sparse.chunked_top_k, *_SKETCHES.values(),
):  # fmt: skip
  REGISTRY.register(_factory)


class Stage(NamedTuple):
  """A codec or a sketch of d numbers, with the key of a message."""

  codec: codecs.Codec
  d: int
  key: np.ndarray

  @property
  def layout(self) -> codecs.Layout:
    """Dtypes and shapes of the arrays of an encoded vector."""
    return self.codec.layout(self.d)


class Compressor:
  """A codec, a sketch, or a sketch | a codec of its tables.

  ValueError: the text has another form, or a name or an option that is not
  known; or it has error feedback around what is no contraction.
  """

  def __init__(self, text: str):
    parts = [registry.parse_call(x, 'compressor') for x in text.split('|')]
    self.feedback = parts[-1].pop('error_feedback', False)
    fields.check_option('error_feedback', self.feedback, bool)
    kinds = [part['kind'] in _SKETCHES for part in parts]
    if kinds not in ([True], [False], [True, False]):
      raise ValueError(
        f'compressor={text!r} must be a codec, a sketch, or a sketch | a codec.'
      )
    self._parts, self.has_sketch = parts, kinds[0]
    self.stages(1 << 20, 0, 0, 0)  # raises what is wrong
    nearest = parts[0].get('scale') == 'least_squares'
    if self.feedback and parts[0]['kind'] not in _CONTRACTIONS and not nearest:
      raise ValueError(
        f'compressor={text!r} is no contraction, as error_feedback needs; use '
        f"one of {', '.join(_CONTRACTIONS)} or eden(scale='least_squares')."
      )

  def stages(self, d: int, seed: int, number: int, sender: int) -> list[Stage]:
    """Build the sketch and codec of d numbers, with a sender's keys."""
    root, stages = draws.seed_key(seed), []
    fold = lambda *numbers: functools.reduce(draws.fold_in, numbers, root)
    public, own = fold(_ROUND, number), fold(_CLIENT, number, sender, _CODEC)
    for options in self._parts if d else ():
      key = public if options['kind'] in _SKETCHES else own
      made = sizes.sized(REGISTRY, options['kind'], options, d)
      stages.append(Stage(REGISTRY.make(made.pop('kind'), **made), d, key))
      d = math.prod(stages[-1].layout[0][1])  # of a table
    return stages


def encode(stages: Sequence[Stage], x: np.ndarray) -> codecs.Payload:
  """Encode f32[d]; without stages nothing is sent."""
  payload = []
  for codec, _, key in stages:
    payload = codec.encode(key, x)
    x = payload[0].ravel()
  return payload


def decode(stages: Sequence[Stage], payload: codecs.Payload) -> np.ndarray:
  """Decode f32[d]."""
  x = np.zeros(0, np.float32)
  for codec, d, key in stages[::-1]:
    x = codec.decode(key, payload, d)
    payload = [x]
  return x
