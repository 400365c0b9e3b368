"""Collectives between the workers of a training loop; a mean in two stages.

Payloads are gathered and decoded where they arrive; a sum of decoded payloads
would travel as floats.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.rounds import chain, comms
from fl_sketch.rounds.axes import Axis, is_checked, varying
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.rounds.keys import codec_key
from fl_sketch.rounds.unchecked import where_checked
from fl_sketch.sketches.base import dimension
from fl_sketch.utils.types import Params, Payload, Tree
import jax
from jax import lax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Workers(comms.Comm):
  """The workers of a mesh axis that average, each with one client's lane."""

  axis: Axis  # of the mesh, or several; () if what they send has been added up
  keys: jax.Array  # key[size], of each worker's round
  size: int  # number of workers

  def sum(self, tree):
    """All-reduce a tree; leaves of one dtype in one collective."""
    if not self.axis:
      return tree
    one_dtype = len({x.dtype for x in jax.tree.leaves(tree)}) == 1
    vector, restore = ravel_pytree(tree) if one_dtype else (tree, lambda x: x)
    return restore(lax.psum(vector, self.axis))

  def sum_lanes(self, tree, bounded=None):
    """Add up the integers of all workers, leaves [1, ...]."""
    return self.sum(jax.tree.map(lambda x: x[0], tree))

  def slots(self, lanes):
    """Return (the position of this worker, int32[1]; number of workers)."""
    return lax.axis_index(self.axis)[None], self.size

  def stacked_mean(self, payloads, weight, decoded=None, decode=None):
    """Average payloads, leaves [1, ...]; with `decode` where they arrive."""
    if decode is None:
      return super().stacked_mean(payloads, weight, decoded)
    rows = gather(self.axis, jax.tree.map(lambda x: x[0], payloads))
    total = sum_decoded(self.keys, rows, decode)
    mean = jax.tree.map(lambda x: x / self.size, total)
    return mean, comms.nbytes_of_one(payloads)


def check_local(averaged: Axis, grads: Tree):
  """Raise ValueError if JAX has already summed gradients over the axis."""
  kept = set(averaged).intersection(*map(varying, jax.tree.leaves(grads)))
  if is_checked(averaged) and (summed := {*averaged} - kept):
    raise ValueError(
      f'JAX has already summed gradients over {summed}; use '
      f'distributed.value_and_grad(loss, {averaged}).'
    )


def gather(axis: Axis, tree: Payload) -> Payload:
  """All-gathers a payload, in one collective: leaves [...] -> [n, ...]."""
  to = 'invarying' if is_checked(axis) else 'varying'
  rows = lax.all_gather(_to_bytes(tree), axis, to=to)
  return jax.vmap(lambda row: _from_bytes(row, tree))(rows)


def transpose(axis: Axis, tree: Payload) -> Payload:
  """Send row j of leaves [n, ...] to worker j; return rows by sender."""
  rows = jax.vmap(_to_bytes)(tree)
  rows = lax.all_to_all(rows, axis, split_axis=0, concat_axis=0)
  one = jax.tree.map(lambda x: x[0], tree)
  return jax.vmap(lambda row: _from_bytes(row, one))(rows)


def has_no_float(payload: Payload) -> bool:
  """Return whether no array of a payload is of floats, so none can be NaN."""
  return not any(map(is_float, jax.tree.leaves(payload)))


def all_true(axis: Axis, flag: jax.Array) -> jax.Array:
  """Return whether a flag holds on all workers, bool[], shared."""
  return lax.pmin(flag.astype(jnp.uint8), axis) > 0


def sum_decoded(
  keys: jax.Array, rows: Payload, decode: comms.DecodeOne
) -> Tree:
  """Add up decode(keys[i], rows[i]) in the order of the rows.

  Few rows are one fused sum; of many, one decoded tree is held at a time.
  """
  n = keys.shape[0]
  one = lambda i: decode(keys[i], jax.tree.map(lambda x: x[i], rows))
  if n > 8:
    add = lambda total, i: (jax.tree.map(jnp.add, total, one(i)), None)
    return lax.scan(add, one(0), jnp.arange(1, n))[0]
  terms = [one(i) for i in range(n)]
  return jax.tree.map(lambda *xs: sum(xs[1:], xs[0]), *terms)


def _to_bytes(tree: Tree) -> jax.Array:
  """Concatenate the leaves of a payload: uint8[bytes], or the only leaf."""
  leaves = jax.tree.leaves(tree)
  if len(leaves) == 1:  # narrow floats as integers: XLA widens them on CPU
    (x,) = leaves
    narrow = is_float(x) and x.itemsize < 4
    return x.view(f'uint{8 * x.itemsize}') if narrow else x
  return jnp.concatenate([x.ravel().view(jnp.uint8) for x in leaves])


def is_float(x) -> bool:
  """Return whether an array has real floating-point numbers."""
  return jnp.issubdtype(x.dtype, jnp.floating)


def _from_bytes(row: jax.Array, like: Tree) -> Tree:
  leaves, treedef = jax.tree.flatten(like)
  if len(leaves) == 1:
    return treedef.unflatten([row.view(leaves[0].dtype)])
  ends = np.cumsum([x.size * x.dtype.itemsize for x in leaves])
  parts = jnp.split(row, ends[:-1])
  read = lambda part, x: part.view(x.dtype).reshape(x.shape)
  return treedef.unflatten(map(read, parts, leaves))


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

  Source: the compressed all-reduce of 1-bit Adam, Tang et al., ICML 2021,
  arXiv:2102.02888, Section 5.
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
    vector, restore = ravel_pytree(tree)
    part = jax.ShapeDtypeStruct((c,), vector.dtype)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    own_keys = lambda key: fold(codec_key(key), jnp.arange(n))

    def sent(key, x, residual):  # the payload of a part, and its new residual
      if not error_feedback:
        return codec.encode(key, x), residual
      payload = codec.encode(key, x + residual)
      lost = x + residual - codec.decode(key, payload, part)
      return payload, residual_decay * lost

    rows = jnp.pad(vector, (0, n * c - vector.size)).reshape(n, c)
    none = jnp.zeros((n, 0))
    residuals = state.own.value[0] if error_feedback else none
    sent = where_checked(sent, comm.axis)
    payloads, own = jax.vmap(sent)(own_keys(keys.client[0]), rows, residuals)
    arrived = transpose(comm.axis, payloads)
    me = lax.axis_index(comm.axis)
    senders = jax.vmap(lambda key: jax.random.fold_in(codec_key(key), me))
    decode = lambda key, payload: codec.decode(key, payload, part)
    decode = where_checked(decode, comm.axis)
    mean = sum_decoded(senders(comm.keys), arrived, decode) / n
    shared = own_keys(keys.round)
    residual = state.mean.value[0] if error_feedback else none
    message, left = sent(shared[me], mean, residual)
    messages = gather(comm.axis, message)
    mean = jax.vmap(decode)(shared, messages).ravel()[: vector.size]
    if has_no_float(payloads):
      finite = all_true(comm.axis, all_finite(vector))
      mean = jnp.where(finite, mean, jnp.nan)
    one = comms.nbytes(message)
    if error_feedback:
      own, left = comms.PerClient(own[None]), comms.PerClient(left[None])
      state = state._replace(own=own, mean=left)
    return restore(mean), state._replace(bill=comms.bill(n * one, n * one))

  return chain.exchange(init, update, broadcasts=True)
