"""What codecs refuse, and in which words."""

from codec_cases import CODECS, QUANTIZED
from fl_sketch import codecs, sketches
import jax
import jax.numpy as jnp
from operators import KEY
import pytest
from refusals import refused_calls

CYCLIC = sketches.block_cyclic(4)
NO_ALPHA = sketches.properties(CYCLIC)._replace(alpha=None)


@pytest.mark.parametrize('codec', [
  codecs.top_k(9), codecs.rand_k(9), QUANTIZED(9, 2, 3),
  codecs.chunked_top_k(9, 16), codecs.dct_top_k(9, 16),
])  # fmt: skip
def test_k_beyond_the_tree(codec):
  full = jax.eval_shape(codec.encode, KEY, jnp.ones(9))
  with pytest.raises(ValueError, match='k=9 exceeds d=8'):
    codec.encode(KEY, jnp.ones(8))
  with pytest.raises(ValueError, match='k=9 exceeds d=8'):
    codec.decode(KEY, full, jnp.ones(8))


REFUSED = {
  'k=0 ': lambda: codecs.top_k(0),
  'k=-1 ': lambda: codecs.rand_k(-1),
  'k=1.5 ': lambda: QUANTIZED(1.5, 2, 1),
  'bucket=0 ': lambda: QUANTIZED(2, 2, 0),
  'bits=3 must be 2, 4 or 8': lambda: QUANTIZED(2, 3, 1),
  'k=4 must be a multiple of bucket=3': lambda: QUANTIZED(4, 2, 3),
  'k=0 must be an integer >= 1': lambda: codecs.chunked_top_k(0),
  'chunk=0 ': lambda: codecs.dct_top_k(1, 0),
  'k=5 exceeds chunk=4': lambda: codecs.chunked_top_k(5, 4),
  'k=3 exceeds chunk=2': lambda: codecs.dct_top_k(3, 2),
  'bits=1 must be 2, 3 or 4': lambda: codecs.chunked_top_k(2, 4, 1),
  'bits=5 must be 1, 2, 3 or 4': lambda: codecs.eden(5),
  "scale='best' must": lambda: codecs.eden(scale='best'),
  'num_coordinates=3 requires rotate=True': lambda: codecs.eden(
    num_coordinates=3, rotate=False
  ),
  'levels=0 ': lambda: codecs.qsgd(0),
  'levels=32768 must be below 32768': lambda: codecs.qsgd(2**15),
  'block=0 ': lambda: codecs.int8(0),
  'block=-8 ': lambda: codecs.int4(-8),
  "norm='max' must": lambda: codecs.sign('max'),
  "codec='top_k' must be unbiased": lambda: codecs.contract(codecs.top_k(1)),
  "codec='contract": lambda: codecs.contract(CODECS['small_qsgd'].codec),
  'linear=False': lambda: codecs.from_sketch(sketches.count_sketch(3, 2)),
  'must be linear and state an alpha': lambda: codecs.from_sketch(
    CYCLIC._replace(properties=NO_ALPHA)
  ),
  "codec='zip' must": lambda: codecs.make('zip'),
  "codec 'top_k' requires options .'k'.": lambda: codecs.make('top_k'),
  "'top_k' has no options .'levels'.; it has .'k',": lambda: codecs.make(
    'top_k', k=1, levels=1
  ),
}


test_refusals = refused_calls(*((x, message) for message, x in REFUSED.items()))
