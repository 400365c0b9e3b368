"""Preconditioned sketching: Adam's adaptivity before the sketch."""

from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import check_codec, decoder
from fl_sketch.rounds.keys import codec_key
from fl_sketch.sketches.base import dimension
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax

# For each leaf the means of its squares over the rows and over the columns of a
# matrix [..., columns], or over a vector.
Factors = tuple[tuple[jax.Array, ...], ...]


class Preconditioner(NamedTuple):
  """State between rounds: rounds done, `Factors`, bill."""

  count: jax.Array
  factors: Factors
  bill: comms.Bill


class Moments(NamedTuple):
  """State of the server's step, of which every client has a copy."""

  count: jax.Array  # int32[], rounds done
  factors: Factors  # by which the next round's updates are divided
  first: Tree  # mean of the estimated updates
  second: jax.Array  # f32[], mean of the squares of preconditioned numbers


def preconditioned_sketching(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  every: fields.Count = 20,
  keep: fields.Share = 0.7,
  damping: fields.Positive = 0.01,
  client_momentum: fields.Share = 0.0,
  b1: float = 0.9,
  b2: float = 0.99,
  schedule: optax.Schedule | None = None,
  codec: codecs.Codec | None = None,
  downlink_codec: codecs.Codec | None = None,
) -> Algorithm:
  r"""Sketch updates that are divided by the fourth root of their squares.

  Clients send second moments, and each side of the sketch, whose noise is even,
  applies half of the preconditioner:

  .. math:: y_c = R(\Delta_c / q), \quad z = R^\top \bar y, \quad q = (v +
    \lambda \bar v)^{1/4}

  M is the mean :math:`\beta_1 M + (1 - \beta_1) q z` of the estimated updates,
  s that of :math:`\|z\|^2 / d` by :math:`\beta_2`, both with bias corrected,
  and :math:`x \leftarrow x - \eta\, u / (\sqrt s\, \mathrm{rms}(1 / q))` with
  :math:`u = M / q^2`.

  In rounds 0, ``every``, 2 ``every`` ... clients add the means of their squared
  updates over rows and over columns (Adafactor's factors), and the server sends
  v with the mean table. Before that q is 1.

  Options:
    every: rounds from one exchange of factors to the next.
    keep: weight of the old factors.
    damping: :math:`\lambda`, in units of the mean of v over all coordinates.
    client_momentum: as of `safl`, of :math:`\Delta_c / q`.

  Symbols: server_lr eta; sketch R; b1, b2 beta_1, beta_2; damping lambda.

  Departures: none. Factors are those of Adafactor (Shazeer and Stern, ICML
  2018, arXiv:1804.04235), and have no privacy analysis.

  Source: this project, after Chen, Li, Banerjee, arXiv:2411.06770.
  """
  codec = codec or codecs.identity()
  downlink_codec = downlink_codec or codecs.identity()
  local = task.steps(hp)

  def work(params, batches, key, factors):
    moved, metrics = local(params, batches, key, None)
    scaled = jax.tree.map(jnp.divide, moved, _roots(factors, params, damping))
    return {'update': scaled, 'factors': row_and_column_means(moved)}, metrics

  return federated(
    work,
    _send(sketch, codec, client_momentum),
    _exchange(sketch, every, keep, codec, downlink_codec),
    _step(sketch, every, damping, b1, b2, downlink_codec),
    server_optimizers.server_step(hp, 'sgd', schedule),
    correction=lambda state: chain.state_of(state, Preconditioner).factors,
    update_template=lambda x: {'update': x, 'factors': row_and_column_means(x)},
  )


def row_and_column_means(tree) -> Factors:
  """Return means of squares over the rows and columns of every matrix."""

  def means(x):
    square = jnp.square(x.astype(jnp.float32))
    if x.ndim < 2:
      return (square.mean(),)
    matrix = square.reshape(-1, x.shape[-1])
    return matrix.mean(1), matrix.mean(0)

  return tuple(map(means, jax.tree.leaves(tree)))


def _roots(factors, params, damping) -> Tree:
  leaves, treedef = jax.tree.flatten(params)

  def second_moment(means, x):
    if x.ndim < 2:
      (mean,) = means
      return jnp.broadcast_to(mean, x.shape)
    rows, columns = means
    rows = rows / jnp.maximum(rows.mean(), 1e-38)
    return (rows[:, None] * columns[None]).reshape(x.shape)

  moments = list(map(second_moment, factors, leaves))
  mean = sum(v.sum() for v in moments) / dimension(params)
  fourth = lambda v: jnp.sqrt(jnp.sqrt(v + damping * mean))
  root = lambda v: jnp.where(mean > 0, fourth(v), 1.0)
  return treedef.unflatten(map(root, moments))


def _send(op, codec, momentum) -> chain.Link:
  average = optax.ema(momentum) if momentum else optax.identity()

  def init(params):
    # Raises if the table exceeds the model.
    check_codec(codec, jax.eval_shape(op.zero_table, params))
    return average.init(params)

  def encode(moved, state, params=None, *, keys, **_):
    update, state = average.update(moved['update'], state)
    table = op.sketch(keys.round, update)
    payload = codec.encode(codec_key(keys.client), table)
    return {'table': payload, 'factors': moved['factors']}, state

  return chain.Link(init, encode, chain.CLIENT)


def _exchange(op, every, keep, codec, downlink_codec) -> chain.Link:

  def decode(keys, payload, like):
    shapes = jax.eval_shape(op.zero_table, like)
    table = decoder(codec)(keys, payload['table'], shapes)
    return {'table': table, 'factors': payload['factors']}

  def init(params):
    check_codec(downlink_codec, jax.eval_shape(op.zero_table, params))
    factors = optax.tree.zeros_like(row_and_column_means(params))
    return Preconditioner(jnp.int32(0), factors, comms.bill())

  def update(lane_sum, state, params=None, *, keys, comm, **_):
    mean, up = comm.mean(lane_sum)
    due = state.count % every == 0
    old = jnp.where(state.count == 0, 0, keep)
    mix = lambda x, new: jnp.where(due, old * x + (1 - old) * new, x)
    factors = jax.tree.map(mix, state.factors, mean['factors'])
    table = downlink_codec.encode(codec_key(keys.round), mean['table'])
    size = comms.nbytes(factors)
    unsent = jnp.where(due, 0, jnp.uint32(size))
    bill = comms.bill(up, comms.nbytes(table) + size)
    bill = jax.tree.map(lambda x: x - unsent, bill)
    message = comm.announce({'table': table, 'factors': factors})
    factors = optax.tree.where(due, message['factors'], state.factors)
    return message, Preconditioner(state.count + 1, factors, bill)

  def due(protocol):
    count = chain.state_of(protocol, Preconditioner).count
    return {'factors': count % every == 0}

  return chain.Link(
    init, update, chain.UPLINK, decode=decode, broadcasts=True, due=due
  )


def _step(op, every, damping, b1, b2, downlink_codec) -> chain.Link:

  def init(params):
    zeros = optax.tree.zeros_like(params)
    factors = optax.tree.zeros_like(row_and_column_means(params))
    return Moments(jnp.int32(0), factors, zeros, jnp.float32(0))

  def update(message, state, params=None, *, keys, **_):
    key = codec_key(keys.round)
    shapes = jax.eval_shape(op.zero_table, params)
    table = downlink_codec.decode(key, message['table'], shapes)
    estimate = op.desketch(keys.round, table, params)
    q = _roots(state.factors, params, damping)
    count, d = state.count + 1, dimension(params)
    average = lambda m, z, root: b1 * m + (1 - b1) * root * z
    first = jax.tree.map(average, state.first, estimate, q)
    square = optax.tree.norm(estimate, squared=True) / d
    second = b2 * state.second + (1 - b2) * square
    inverse = optax.tree.norm(jax.tree.map(jnp.reciprocal, q), squared=True) / d
    length = jnp.sqrt(second / (1 - b2**count) * inverse)
    scale = 1 / (1 - b1**count) / jnp.maximum(length, 1e-38)
    direction = jax.tree.map(lambda m, r: scale * m / r**2, first, q)
    due = state.count % every == 0
    factors = optax.tree.where(due, message['factors'], state.factors)
    return direction, Moments(count, factors, first, second)

  return chain.Link(init, update, chain.SHARED)
