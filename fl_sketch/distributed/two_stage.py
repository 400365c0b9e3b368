"""A mean in two stages, both compressed: scatter, average, gather."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.distributed import workers
from fl_sketch.rounds import chain, comms
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.rounds.keys import codec_key
from fl_sketch.rounds.unchecked import where_checked
from fl_sketch.sketches.base import dimension
from fl_sketch.utils.types import Params, Tree
import jax
from jax import flatten_util, lax
import jax.numpy as jnp


class Residuals(NamedTuple):
  """Residuals, one row per worker; () without error feedback."""

  own: comms.PerClient  # f32[lanes, n, c], of the worker's numbers
  mean: comms.PerClient  # f32[lanes, c], of the part that it averages
  bill: comms.Bill


def two_stage_mean(
  codec_of: Callable[[int], codecs.Codec], like: Callable[[Params], Tree],
  size: int | None, *, error_feedback: bool = False,
  residual_decay: float = 1.0,
) -> chain.Link:  # fmt: skip
  r"""Build the transformation that averages in two compressed stages.

  The b numbers are cut into n parts of c = ceil(b / n). Worker j gets part j of
  all workers, :math:`C(x_{ij})`, averages what it decodes, and sends :math:`C(
  \bar x_j)` to all: 2 (n - 1) / n payloads leave a worker, where a gather of
  payloads takes n - 1. The mean is unbiased if the codec is. With error
  feedback a worker keeps the residual :math:`\beta (p - C(p))` of both stages,
  where beta is `residual_decay` and C must be a contraction. `codec_of` is c ->
  the codec C, `like` params -> the shapes of what is averaged, and `size` n;
  None outside of a mesh.

  Source: Tang et al., 1-bit Adam, ICML 2021, arXiv:2102.02888, Section 5: the
  compressed all-reduce.
  """

  def parts_of(tree):
    if size is None:
      raise ValueError(
        'The state depends on the number of workers; initialise it with '
        'distributed.init(tx, params, mesh).'
      )
    c = -(-dimension(tree) // size)
    return size, c, codec_of(c)

  def init(params):
    own = mean = ()
    if error_feedback:
      n, c, _ = parts_of(jax.eval_shape(like, params))
      own, mean = jnp.zeros((n, c)), jnp.zeros(c)
    return Residuals(comms.PerClient(own), comms.PerClient(mean), comms.bill())

  def update(lanes, state, params=None, *, keys, comm, **_):
    tree = jax.tree.map(lambda x: x[0], lanes)
    n, c, codec = parts_of(tree)
    vector, restore = flatten_util.ravel_pytree(tree)
    part = jax.ShapeDtypeStruct((c,), vector.dtype)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    own_keys = lambda key: fold(codec_key(key), jnp.arange(n))

    def sent(key, x, residual):  # the payload of a part, and its new residual
      x = x + residual if error_feedback else x
      payload = codec.encode(key, x)
      if not error_feedback:
        return payload, residual
      return payload, residual_decay * (x - codec.decode(key, payload, part))

    rows = jnp.pad(vector, (0, n * c - vector.size)).reshape(n, c)
    none = jnp.zeros((n, 0))
    residuals = state.own.value[0] if error_feedback else none
    sent = where_checked(sent, comm.axis)
    payloads, own = jax.vmap(sent)(own_keys(keys.client[0]), rows, residuals)
    arrived = workers.transpose(comm.axis, payloads)
    me = lax.axis_index(comm.axis)
    senders = jax.vmap(lambda key: jax.random.fold_in(codec_key(key), me))
    decode = lambda key, payload: codec.decode(key, payload, part)
    decode = where_checked(decode, comm.axis)
    mean = workers.sum_decoded(senders(comm.keys), arrived, decode) / n
    shared = own_keys(keys.round)
    residual = state.mean.value[0] if error_feedback else none
    message, left = sent(shared[me], mean, residual)
    messages = workers.gather(comm.axis, message)
    mean = jax.vmap(decode)(shared, messages).ravel()[: vector.size]
    if workers.has_no_float(payloads):
      finite = workers.all_true(comm.axis, all_finite(vector))
      mean = jnp.where(finite, mean, jnp.nan)
    one = comms.nbytes(message)
    if error_feedback:
      own, left = comms.PerClient(own[None]), comms.PerClient(left[None])
      state = state._replace(own=own, mean=left)
    return restore(mean), state._replace(bill=comms.bill(n * one, n * one))

  return chain.exchange(init, update, broadcasts=True)
