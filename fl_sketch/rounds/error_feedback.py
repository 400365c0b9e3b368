"""Links that compress by a codec: plain, error feedback, Markov, downlink."""

from collections.abc import Callable

from fl_sketch import codecs
from fl_sketch.rounds import chain, comms, keys as keys_lib, transforms as t
from fl_sketch.utils.types import Params, Payload, Tree
import jax
import jax.numpy as jnp
import optax


def decoder(codec: codecs.Codec) -> comms.Decode:
  """Return the ``decode`` of payloads of `compress` and `markov`."""
  return lambda keys, payload, like: codec.decode(
    keys_lib.codec_key(keys.client), payload, like
  )


def decoded_mean(
  codec: codecs.Codec, payload: Payload, like: Tree, *, comm: comms.Comm,
  weight: jax.Array, **options,
) -> tuple[Tree, Tree, int]:  # fmt: skip
  """Return (decoded lanes, their mean over the cohort, bytes of a client)."""
  of_client = lambda keys, x: decoder(codec)(keys, x, like)
  decoded = t.over_lanes(of_client, payload, **options)
  one = lambda key, x: codec.decode(keys_lib.codec_key(key), x, like)
  mean, up = comm.stacked_mean(payload, weight, decoded, one)
  return decoded, mean, up


def check_codec(codec: codecs.Codec, params: Tree) -> None:
  """Raise ValueError if the codec cannot encode trees like `params`."""
  jax.eval_shape(codec.encode, jax.random.key(0), params)


def broadcast(
  codec: codecs.Codec | None, like: Callable[[Params], Tree]
) -> tuple[chain.Link, ...]:
  """Build the links that encode, send and decode the mean; None: no codec.

  The server continues with the decoded mean, as clients do. The codec should be
  unbiased: no residual is kept. `like` is params -> a tree of the mean's
  shapes, as ``sketch.zero_table``.
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

  encoder = chain.Link(init, encode, chain.SHARED)
  return encoder, t.broadcast(), t.stateless(decode)


def compress(
  codec: codecs.Codec, *, error_feedback: bool = False,
  residual_decay: float = 1.0,
) -> chain.Link:  # fmt: skip
  r"""Client: pseudo-gradient -> payload.

  With error feedback :math:`p = e + \Delta`, :math:`C(p)` is sent and
  :math:`e \leftarrow \beta (p - C(p))`; e is d floats on each client. At
  :math:`\beta = 1`, :math:`\sum_t C(p_t) = \sum_t \Delta_t - e_T`. The codec's
  draws are independent on each client.

  Raises ValueError unless 0 < beta = `residual_decay` <= 1, or if it is not 1
  without error feedback, or if the codec of error feedback is no contraction:
  the residual would grow without bound.

  Source: Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019,
  arXiv:1901.09847, Algorithm 2.
  """
  if error_feedback and codec.contraction is None:
    raise ValueError(f'{codec=} must be a contraction; see codecs.contract.')
  if not error_feedback and residual_decay != 1:
    raise ValueError(f'{residual_decay=} must be 1 without error feedback.')
  if not 0 < residual_decay <= 1:
    raise ValueError(f'{residual_decay=} must be > 0 and <= 1.')
  remaining = lambda target, sent: residual_decay * (target - sent)

  def init(params):
    check_codec(codec, params)
    return optax.tree.zeros_like(params) if error_feedback else ()

  def update(moved, residual, params=None, *, keys, **_):
    if not error_feedback:
      return codec.encode(keys_lib.codec_key(keys.client), moved), residual
    target = jax.tree.map(jnp.add, moved, residual)
    payload, decoded = _encode(codec, keys, target)
    return payload, jax.tree.map(remaining, target, decoded)

  return chain.Link(init, update, chain.CLIENT)


def markov(codec: codecs.Codec) -> chain.Link:
  r"""Client: gradient -> encoded change of its estimate.

  :math:`C(g - \hat g_i)` is sent and :math:`\hat g_i \leftarrow \hat g_i + C(g
  - \hat g_i)`, from :math:`\hat g_i = 0`. A codec that is no contraction raises
  ValueError.

  Source: Richtarik, Sokolov, Fatkhullin, EF21, NeurIPS 2021, arXiv:2106.05203,
  Algorithm 2; Wang, Lin, Chen, CD-Adam, AISTATS 2022, arXiv:2111.00705.
  """
  init = compress(codec, error_feedback=True).init_fn

  def update(grad, estimate, params=None, *, keys, **_):
    change = jax.tree.map(jnp.subtract, grad, estimate)
    payload, decoded = _encode(codec, keys, change)
    return payload, jax.tree.map(jnp.add, estimate, decoded)

  return chain.Link(init, update, chain.CLIENT)


def _encode(codec, keys, tree):
  """Return (the payload, the tree that the server decodes from it)."""
  key = keys_lib.codec_key(keys.client)
  payload = codec.encode(key, tree)
  return payload, codec.decode(key, payload, tree)
