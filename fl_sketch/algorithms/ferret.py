"""Ferret: sketches of layers, whose sizes follow the norms of updates."""

from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, keys as keys_lib
from fl_sketch.rounds.algorithm import Algorithm, Hyper, RoundLocal, federated
from fl_sketch.utils import fields
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Norms(NamedTuple):
  """State of the server, which sets the table size of each layer."""

  count: jax.Array  # int32[], rounds done
  squares: jax.Array  # f32[layers], averages of the squared norms of updates
  sizes: jax.Array  # int32[layers], numbers of the table of this round
  bill: comms.Bill


def ferret(
  task: Task,
  hp: Hyper,
  *,
  size: fields.Count,
  keep: fields.Share = 0.7,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Iterative sketching whose table layers share by the norms of updates.

  Of a table of b numbers layer l, an array of :math:`d_l` parameters, has about
  :math:`b_l \propto \sqrt{d_l v_l}`, at least one and at most :math:`d_l`; the
  variance :math:`\sum_l d_l \|g_l\|^2 / b_l` is then least. A part of the mean
  table has, on average, the norm of its layer's mean update: :math:`v_l
  \leftarrow k v_l + (1 - k) \|\bar y_l\|^2`. In round 0 :math:`v_l = d_l`. The
  server sends the sizes of the next round with the mean table.

  Options:
    size: b, from the number of layers to d, else a ValueError.
    keep: k, weight of older norms.
    server_optimizer: 'momentum' is that of the authors' code.

  Symbols: client_lr eta; server_lr 1; size the sum of K_l; layers its blocks.

  Departures: a block-cyclic sketch, in O(d), replaces K_l random bases of
  :math:`d_l` numbers each, in :math:`O(d K)`. In the authors' code clients have
  different sizes, by their own norms. Ours are equal, by the norms of past
  means, so that tables can be added up.

  Source: Shu, Hu, Ng, Low, Yu, ICML 2025, arXiv:2409.06277, Algorithm 1;
  checked against the authors' code, github.com/allen4747/Ferret.
  """
  local = task.steps(hp)

  def work(params, batches, keys, sizes):
    moved, metrics = local(params, batches, keys_lib.local_key(keys), None)
    return sketches.layer_cyclic(size, sizes).sketch(keys.round, moved), metrics

  def init(params):
    dims = _dimensions(params)
    sizes = allocate(dims, dims, size)
    return Norms(jnp.int32(0), jnp.float32(dims), sizes, comms.bill())

  def update(lane_sum, state, params=None, *, comm, **_):
    table, up = comm.mean(lane_sum)
    dims = _dimensions(params)
    layers = jnp.arange(dims.size)
    layer = jnp.repeat(layers, state.sizes, total_repeat_length=size)
    squares = jax.ops.segment_sum(jnp.square(table), layer, dims.size)
    old = jnp.where(state.count == 0, 0, keep)
    squares = old * state.squares + (1 - old) * squares
    sizes = allocate(squares, dims, size)
    message = comm.announce({'table': table, 'sizes': sizes})
    bill = comms.bill(up, comms.nbytes(message))
    return message, Norms(state.count + 1, squares, message['sizes'], bill)

  return federated(
    RoundLocal(work),
    chain.Link(init, update, chain.UPLINK, broadcasts=True),
    _read(size),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    correction=lambda protocol: chain.state_of(protocol, Norms).sizes,
    update_template=lambda params: jnp.zeros(size),
  )


def _read(size) -> chain.Link:
  def init(params):
    dims = _dimensions(params)
    return {'sizes': allocate(dims, dims, size)}

  def update(message, state, params=None, *, keys, **_):
    op = sketches.layer_cyclic(size, state['sizes'])
    estimate = op.desketch(keys.round, message['table'], params)
    return estimate, {'sizes': message['sizes']}

  return chain.Link(init, update, chain.SHARED)


def _dimensions(params: Params) -> np.ndarray:
  return np.array([x.size for x in jax.tree.leaves(params)])


def allocate(
  squares: jax.Array | np.ndarray, dims: np.ndarray, size: int
) -> jax.Array:
  """Share a table among layers, in proportion to w_l = sqrt(squares dims).

  A layer gets 1 + min(t w_l, d_l - 1), rounded, with t such that the total is
  `size`. Raises ValueError if `size` is not between the number of layers and d.

  >>> allocate(np.array([9.0, 1.0, 0.0]), np.array([64, 64, 16]), 43).tolist()
  [31, 11, 1]
  """
  if not dims.size <= size <= dims.sum():
    raise ValueError(f'{size=} must be {dims.size} layers to d={dims.sum()}.')
  rest, room = size - dims.size, jnp.float32(dims - 1)
  weights = jnp.sqrt(jnp.float32(dims) * squares)
  weights = jnp.maximum(weights / jnp.maximum(weights.max(), 1e-30), 1e-6)
  # In this order some layers are full, and from one on all have room.
  order = jnp.argsort(room / weights)
  full, heavy = room[order], weights[order]
  scales = (rest - (jnp.cumsum(full) - full)) / jnp.cumsum(heavy[::-1])[::-1]
  has_room = (scales * heavy <= full).at[-1].set(True)
  shares = jnp.minimum(scales[jnp.argmax(has_room)] * weights, room)
  ends = jnp.minimum(jnp.round(jnp.cumsum(shares)), rest).astype(jnp.int32)
  ends = jax.lax.cummax(ends)  # sums in parallel may fall by their rounding
  return 1 + jnp.diff(ends.at[-1].set(rest), prepend=0)
