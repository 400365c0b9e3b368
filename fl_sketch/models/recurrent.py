"""Recurrent models of sequences: LSTM and GRU."""

import functools
from typing import ClassVar

from fl_sketch.models import layers, transformer
from fl_sketch.utils import fields
import flax.linen as nn
import jax
import jax.numpy as jnp

# Of McMahan et al., arXiv:1602.05629 (Shakespeare) and of Reddi et al.,
# arXiv:2003.00295 (Stack Overflow), as TensorFlow Federated has them.
SIZES = {
  'lstm_shakespeare': dict(embedding=8, hidden=256, layers=2),
  'lstm_stackoverflow': dict(embedding=96, hidden=670, layers=1, projection=96),
}

_GLOROT = nn.initializers.glorot_uniform()
_vectors = functools.partial(jax.random.uniform, minval=-0.05, maxval=0.05)


class LSTMLayer(nn.Module):
  r"""LSTM with a forget gate, Gers, Schmidhuber and Cummins, ICANN 1999.

  :math:`c_t = \sigma(f) c_{t-1} + \sigma(i) \tanh(g)` and
  :math:`h_t = \sigma(o) \tanh(c_t)`, where i, f, g and o are the parts of
  :math:`W x_t + U h_{t-1} + b`; b starts at 1 for f, else at 0, as in Keras.
  Returns every h, f32[batch, length, hidden], as `GRULayer` does.
  """

  hidden: int  # numbers of h
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, x_BxLxD):
    first = lambda key, shape, dtype: jnp.repeat(
      jnp.array([0, 1, 0, 0], dtype), self.hidden
    )
    inputs_LxBxG, recurrent = _products(self, x_BxLxD, 4, bias_init=first)

    def step(carry, inputs):
      c, h = carry
      i, f, g, o = jnp.split(inputs + recurrent(h), 4, axis=-1)
      c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
      h = jax.nn.sigmoid(o) * jnp.tanh(c)
      return (c, h), h

    zeros = jnp.zeros_like(inputs_LxBxG[0, :, : self.hidden])
    _, h_LxBxH = jax.lax.scan(step, (zeros, zeros), inputs_LxBxG)
    return h_LxBxH.swapaxes(0, 1)


class GRULayer(nn.Module):
  r"""GRU, Cho et al., arXiv:1406.1078, in the form of cuDNN and of flax.

  :math:`h_t = (1 - z) n + z h_{t-1}` with :math:`r = \sigma(W_r x + U_r h)`,
  :math:`z = \sigma(W_z x + U_z h)` and
  :math:`n = \tanh(W_n x + r (U_n h + b))`, where every W x has a bias, too. In
  the paper r is multiplied with h.
  """

  hidden: int  # numbers of h
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, x_BxLxD):
    inputs_LxBxG, recurrent = _products(self, x_BxLxD, 3)
    zeros = nn.initializers.zeros
    bias = self.param('recurrent_bias', zeros, (self.hidden,))[None]

    def step(h, inputs):
      r, z, n = jnp.split(inputs, 3, axis=-1)
      u_r, u_z, u_n = jnp.split(recurrent(h), 3, axis=-1)
      r, z = jax.nn.sigmoid(r + u_r), jax.nn.sigmoid(z + u_z)
      h = (1 - z) * jnp.tanh(n + r * (u_n + bias)) + z * h
      return h, h

    start = jnp.zeros_like(inputs_LxBxG[0, :, : self.hidden])
    return jax.lax.scan(step, start, inputs_LxBxG)[1].swapaxes(0, 1)


def _products(layer, x_BxLxD, parts, **options):
  """Return W x + b, f32[length, batch, parts x hidden], and h -> U h."""
  width = parts * layer.hidden
  inputs = layers.dense(
    width, layer.dtype, kernel_init=_GLOROT, name='input', **options,
  )(x_BxLxD)  # fmt: skip
  shape = layer.hidden, width
  kernel = layer.param('recurrent', nn.initializers.orthogonal(), shape)
  recurrent = lambda h: layers.matmul(h, kernel, layer.dtype)
  return inputs.swapaxes(0, 1), recurrent


class Recurrent(nn.Module):
  """Vectors of tokens, recurrent layers, and logits of the next token.

  Padding may only follow the tokens of a sequence. Dropout is between layers
  (Zaremba et al., arXiv:1409.2329). Embeddings and kernels start as in Keras.
  """

  num_classes: int | None  # tokens of the data
  embedding: fields.Count = 8  # numbers of a token
  hidden: fields.Count = 256  # numbers of a state
  layers: fields.Count = 2  # recurrent layers
  projection: fields.Count | None = None  # of a dense layer before the logits
  vocab_size: int | None = None  # tokens of the model, if more than of the data
  dropout: fields.Share = 0.0  # rate in training
  last: bool = False  # logits of the last token alone, as LEAF's data need it
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  LAYER: ClassVar[type[nn.Module]]

  @nn.compact
  def __call__(self, tokens_BxL, train: bool = False):
    transformer.check_tokens(tokens_BxL)
    rows = transformer.vocabulary(self.num_classes, self.vocab_size)
    drop = lambda x: transformer.drop(x, self.dropout if train else 0.0)
    x = self.param('words', _vectors, (rows, self.embedding))[tokens_BxL]
    for i in range(self.layers):
      x = self.LAYER(self.hidden, self.dtype, name=f'layer_{i}')(drop(x))
    x = drop(x[:, -1] if self.last else x)
    dense = functools.partial(
      layers.dense, dtype=self.dtype, kernel_init=_GLOROT
    )
    if self.projection is not None:
      x = dense(self.projection, name='projection')(x)
    return dense(rows, name='logits')(x)


class LSTM(Recurrent):
  """LSTM layers: see `LSTMLayer`, and `Recurrent` for the options."""

  LAYER = LSTMLayer


class GRU(Recurrent):
  """GRU layers: see `GRULayer`, and `Recurrent` for the options."""

  LAYER = GRULayer
