"""What codecs refuse, by the name of the field."""

from codec_cases import CODECS, QUANTIZED
from fl_sketch import codecs, sketches
import jax.numpy as jnp
from operators import KEY
import pytest
from refusals import counts_below_one

CYCLIC = sketches.block_cyclic(4)


# Catches a codec that is built with a k of 0, or of 1.5.
test_a_count_below_one_is_refused_by_name = counts_below_one(codecs, {
  'top_k': {'k': 2}, 'rand_k': {'k': 2}, 'qsgd': {'levels': 2},
  'quantized_top_k': {'k': 2, 'bits': 2, 'bucket': 2}, 'int8': {'block': 2},
  'int4': {'block': 2}, 'chunked_top_k': {'k': 2, 'chunk': 2, 'bits': 2},
  'dct_top_k': {'k': 2, 'chunk': 2}, 'eden': {'bits': 2},
})  # fmt: skip


@pytest.mark.parametrize('codec', [
  codecs.top_k(9), codecs.rand_k(9), QUANTIZED(9, 2, 3),
  codecs.chunked_top_k(9, 16), codecs.dct_top_k(9, 16),
])  # fmt: skip
def test_k_beyond_the_tree(codec):
  with pytest.raises(ValueError, match='k=9'):
    codec.encode(KEY, jnp.ones(8))


def test_only_unbiased_codecs_and_linear_sketches_are_wrapped():
  """Catches a law that is stated for what has none."""
  no_alpha = sketches.properties(CYCLIC)._replace(alpha=None)
  with pytest.raises(ValueError, match='unbiased'):
    codecs.contract(CODECS['small_qsgd'].codec)
  for op in sketches.count_sketch(3, 2), CYCLIC._replace(properties=no_alpha):
    with pytest.raises(ValueError, match='linear'):
      codecs.from_sketch(op)
  with pytest.raises(ValueError, match='levels'):  # beyond 16 bits
    codecs.qsgd(2**15)
