"""Llama: Touvron et al., arXiv:2302.13971 and 2307.09288, and its relatives."""

from fl_sketch.models import transformer
from fl_sketch.models.decoder import Decoder
from fl_sketch.utils import checks
import flax.linen as nn
import jax

# 'llama' is of sizes that are given; nano is for experiments on a CPU.
SIZES = {
  'llama': {},
  'llama_nano': dict(width=64, depth=2, heads=2, kv_heads=1, hidden=176),
  'smollm2_135m': dict(  # Allal et al., arXiv:2502.02737
    width=576, depth=30, heads=9, kv_heads=3, hidden=1536, vocab_size=49152,
    theta=1e5,
  ),
  'qwen2_500m': dict(  # also Qwen2.5: Yang et al., arXiv:2412.15115
    width=896, depth=24, heads=14, kv_heads=2, hidden=4864, vocab_size=151936,
    theta=1e6, epsilon=1e-6, qkv_bias=True,
  ),
}  # fmt: skip
STD = 0.02  # of first kernels and vectors


class Llama(Decoder):
  """A decoder of Llama's blocks: RMSNorm first, SwiGLU, rotary positions.

  Keys and values have `kv_heads` heads, a divisor of heads, None is as many;
  with `qkv_bias` they and queries have biases, as Qwen2's. `theta` is the base
  of rotary positions, see `transformer.rotate`, `epsilon` is of RMSNorm. Other
  options are those of `decoder.Decoder`.
  """

  kv_heads: int | None = None
  theta: float = 1e4
  epsilon: float = 1e-5
  qkv_bias: bool = False

  def __post_init__(self):
    kv_heads = self.heads if self.kv_heads is None else self.kv_heads
    checks.count('kv_heads', kv_heads)
    if self.heads % kv_heads:
      raise ValueError(f'heads={self.heads} must be a multiple of {kv_heads=}.')
    super().__post_init__()
    transformer.check_rotary(self.theta, self.width, self.heads)

  def kind(self, dropout: float) -> transformer.Kind:
    """Blocks of Llama."""
    init = nn.initializers.normal(STD)
    return transformer.Kind(
      norm=lambda name: nn.RMSNorm(epsilon=self.epsilon, name=name),
      activation=jax.nn.silu, gated=True, causal=True, theta=self.theta,
      kv_heads=self.kv_heads, qkv_bias=self.qkv_bias, bias=False,
      dropout=dropout, init=init, init_out=init,
    )  # fmt: skip
