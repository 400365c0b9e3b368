"""Compression of what clients and server send; error feedback, estimates."""

from collections.abc import Callable
from typing import Any

from fl_sketch import codecs
from fl_sketch.rounds import chain, comms, keys as keys_lib, transforms as t
import jax
import jax.numpy as jnp
import optax


def decoder(codec: codecs.Codec) -> comms.Decode:
  """The decoder of `compress` and `markov` payloads, for `mean_over_cohort`."""
  return lambda keys, payload, like: codec.decode(
    keys_lib.codec_key(keys.client), payload, like
  )


def decoded_mean(
  codec: codecs.Codec, payload: Any, like: Any, *, weight: jax.Array, **options
) -> tuple[Any, Any, int]:
  """Returns (decoded lanes, their mean over the cohort, bytes of a client)."""
  of_client = lambda keys, x: decoder(codec)(keys, x, like)
  decoded = t.over_lanes(of_client, payload, **options)
  one = lambda key, x: codec.decode(keys_lib.codec_key(key), x, like)
  mean, up = comms.uplink_stacked_mean(payload, weight, decoded, decode=one)
  return decoded, mean, up


def check_codec(codec: codecs.Codec, params: Any) -> None:
  """Raises ValueError if the codec cannot encode trees like `params`."""
  jax.eval_shape(codec.encode, jax.random.key(0), params)


def broadcast(
  codec: codecs.Codec | None, like: Callable[[Any], Any]
) -> tuple[chain.Transform, ...]:
  """The downlink in a codec: the links that encode, send and decode the mean.

  The server, too, continues with what is decoded, by a key of the round. The
  codec should be unbiased: nothing keeps its error; None sends the mean as it
  is. `like` is params -> what is sent, as ``sketch.zero_table``, or its shapes.
  """
  if codec is None:
    return (t.broadcast(),)
  key_of = lambda keys: keys_lib.codec_key(keys.round)

  def init(params):
    check_codec(codec, jax.eval_shape(like, params))
    return optax.EmptyState()

  def encode(mean, state, params=None, *, keys, **_):
    return codec.encode(key_of(keys), mean), state

  def decode(payload, params, *, keys, **_):
    return codec.decode(key_of(keys), payload, jax.eval_shape(like, params))

  return chain.Transform(init, encode), t.broadcast(), t.stateless(decode)


def compress(
  codec: codecs.Codec, *, error_feedback: bool = False,
  residual_decay: float = 1.0,
) -> chain.ClientTransform:  # fmt: skip
  r"""Client: pseudo-gradient -> payload.

  With error feedback :math:`p = e + \Delta`, :math:`C(p)` is sent and
  :math:`e \leftarrow \beta (p - C(p))`. At :math:`\beta = 1` payloads and
  residual add up to the updates: :math:`\sum_t C(p_t) = \sum_t \Delta_t -
  e_T`. The codec's draws are independent on each client, which keeps e (d
  floats). Beta, 0 < `residual_decay` <= 1, is 1 without error feedback; another
  one raises ValueError, and so does error feedback around a codec that is no
  contraction, such as an unbiased sketch that is not scaled: its residual grows
  without bound.

  Source: Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019,
  arXiv:1901.09847, Algorithm 2.
  """
  if error_feedback and codec.contraction is None:
    raise ValueError(
      f'codec={codec.name!r} must be a contraction; see codecs.contract.'
    )
  if not error_feedback and residual_decay != 1:
    raise ValueError(f'{residual_decay=} must be 1 without error feedback.')
  if not 0 < residual_decay <= 1:
    raise ValueError(f'{residual_decay=} must be > 0 and <= 1.')
  keep = lambda target, sent: residual_decay * (target - sent)

  def init(params):
    check_codec(codec, params)
    return optax.tree.zeros_like(params) if error_feedback else ()

  def update(moved, residual, params=None, *, keys, **_):
    if not error_feedback:
      return codec.encode(keys_lib.codec_key(keys.client), moved), residual
    target = jax.tree.map(jnp.add, moved, residual)
    payload, decoded = _encode(codec, keys, target)
    return payload, jax.tree.map(keep, target, decoded)

  return chain.ClientTransform(init, update)


def markov(codec: codecs.Codec) -> chain.ClientTransform:
  r"""Client: gradient -> encoded change of its estimate.

  :math:`C(g - \hat g_i)` is sent and :math:`\hat g_i \leftarrow \hat g_i + C(g
  - \hat g_i)`, from :math:`\hat g_i = 0`. A codec that is no contraction raises
  ValueError.

  Source: Richtarik, Sokolov, Fatkhullin, EF21, NeurIPS 2021, arXiv:2106.05203,
  Algorithm 2; Wang, Lin, Chen, CD-Adam, AISTATS 2022, arXiv:2111.00705.
  """
  init = compress(codec, error_feedback=True).init

  def update(grad, estimate, params=None, *, keys, **_):
    change = jax.tree.map(jnp.subtract, grad, estimate)
    payload, decoded = _encode(codec, keys, change)
    return payload, jax.tree.map(jnp.add, estimate, decoded)

  return chain.ClientTransform(init, update)


def _encode(codec, keys, tree):
  """The payload, and the tree that the server decodes from it."""
  key = keys_lib.codec_key(keys.client)
  payload = codec.encode(key, tree)
  return payload, codec.decode(key, payload, tree)
