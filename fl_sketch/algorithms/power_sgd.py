"""PowerSGD: factors of low rank by one step of power iteration a round."""

from typing import NamedTuple

from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.sketches.primitives import product
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import optax


class State(NamedTuple):
  """State of PowerSGD between rounds: one array for all matrices of a shape."""

  count: jax.Array  # int32[], rounds done
  error: comms.PerClient  # what of each matrix was not sent, f32[k, n, m]
  right: list[jax.Array]  # Q of each, f32[k, m, r]: the next round starts there
  bill: comms.Bill


class Message(NamedTuple):
  """The broadcast of the server: the factors of each matrix."""

  left: list[jax.Array]  # P of each matrix, orthonormal columns, f32[k, n, r]
  right: list[jax.Array]  # the mean Q of each matrix, f32[k, m, r]
  whole: list[jax.Array]  # the means of the other arrays


def power_sgd(
  task: Task,
  hp: Hyper,
  *,
  rank: fields.Count,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Low-rank factors of every matrix, with error feedback and a warm start.

  With :math:`M_i = \Delta_i + e_i` of a matrix, clients send :math:`M_i Q`,
  whose mean has the orthonormal basis P, and then :math:`Q_i = M_i^\top P`;
  :math:`e_i \leftarrow M_i - P Q_i^\top` and :math:`Q \leftarrow \frac1n \sum_i
  Q_i`, from which the next round starts. The step is along :math:`P Q^\top`.

  An array of two axes or more is a matrix, n by m with m its last axis, if
  r (n + m) < n m. Other arrays are sent whole.

  Options:
    rank: r.

  Symbols: server_lr gamma; rank r.

  Departures: local steps, and the server's optimizer in place of the momentum
  of Algorithm 2. The paper's code keeps :math:`M_i - P Q^\top` with the mean Q,
  which grows where cohorts change. The basis is that of a QR decomposition.

  Source: Vogels, Karimireddy, Jaggi, NeurIPS 2019, arXiv:1905.13727, Algorithms
  1 and 2; checked against the authors' code, github.com/epfml/powersgd.
  """

  def init(params):
    stacks, _ = jax.eval_shape(lambda x: _split(x, x, rank), params)
    error = [jnp.zeros(x.shape) for x in stacks]
    right = [jnp.zeros((len(x), x.shape[-1], rank)) for x in stacks]
    return State(jnp.int32(0), comms.PerClient(error), right, comms.bill())

  def update(moved, state, params=None, *, keys, comm, weight, **_):
    matrices, whole = _split(moved, params, rank)
    targets = jax.tree.map(jnp.add, matrices, state.error.value)
    # The first Q is Gaussian, the same on all clients.
    key_of = lambda i: jax.random.fold_in(keys.run, i)
    drawn = lambda i, q: jax.random.normal(key_of(i), q.shape)
    first = lambda i, q: jnp.where(state.count == 0, drawn(i, q), q)
    starts = [first(i, q) for i, q in enumerate(state.right)]
    products = jax.tree.map(lambda m, q: product(m, q[None]), targets, starts)
    (products, whole), up = comm.stacked_mean((products, whole), weight)
    left = jax.tree.map(jax.vmap(_basis), products)
    left, whole = comm.announce((left, whole))
    factors = jax.tree.map(lambda m, p: product(m.mT, p[None]), targets, left)
    right, second = comm.stacked_mean(factors, weight)
    right = comm.announce(right)
    lost = lambda m, p, q: m - product(p[None], q.mT)
    error = jax.tree.map(lost, targets, left, factors)
    message = Message(left, right, whole)
    bill = comms.bill(up + second, comms.nbytes(message))
    return message, State(state.count + 1, comms.PerClient(error), right, bill)

  def read(message, params, **_):
    whole, matrices = iter(message.whole), {}
    for left, right in zip(message.left, message.right, strict=True):
      shape = left.shape[1], right.shape[1]
      matrices[shape] = iter(jnp.unstack(product(left, right.mT)))

    def of_leaf(x):
      if not _low_rank(x, rank):
        return next(whole)
      return next(matrices[_shape(x)]).reshape(x.shape).astype(x.dtype)

    return jax.tree.map(of_leaf, params)

  return federated(
    task.steps(hp),
    chain.exchange(init, update, broadcasts=True),
    t.stateless(read),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )


@jax.custom_batching.sequential_vmap
def _basis(x):
  """Return an orthonormal basis of a matrix's columns, f32[n, r], by QR.

  `vmap` calls it for one matrix after another. On a CPU, JAX splits the QR of a
  stack between the threads on which devices run: if all devices wait for it,
  none of the threads is left, and the step hangs.
  """
  return jnp.linalg.qr(x)[0]


def _shape(x) -> tuple[int, int]:
  return x.size // x.shape[-1], x.shape[-1]


def _low_rank(x, rank) -> bool:
  if x.ndim < 2 or not x.size:
    return False
  n, m = _shape(x)
  return rank * (n + m) < n * m


def _split(tree, params, rank) -> tuple[list[jax.Array], list[jax.Array]]:
  """Stack the matrices of each shape to [..., k, n, m]; return the rest as is.

  A stack is compiled once and travels at once, however many matrices it has.
  """
  stacks, whole = {}, []
  leaves = jax.tree.leaves(tree), jax.tree.leaves(params)
  for x, like in zip(*leaves, strict=True):
    if not _low_rank(like, rank):
      whole.append(x)
      continue
    shape = _shape(like)
    matrix = x.reshape(*x.shape[: x.ndim - like.ndim], *shape)
    stacks.setdefault(shape, []).append(matrix)
  return [jnp.stack(x, axis=-3) for x in stacks.values()], whole
