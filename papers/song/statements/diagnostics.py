"""Runs iterative sketching on the host and records every local step.

`trajectory` is the algorithm in NumPy, float64, one or many runs at once; it
keeps every u_c^{t,k} and g_c^{t,k}, so that `lemmas` can be checked on them.
`client_gradients` and `projection` give it a loss and an operator of the
library, with the hash functions that `algorithms.make('iterative_sketching',
...)` draws, in the dtype of the parameters: under `jax.enable_x64`, float64.
Memory is rounds * local_steps * runs * clients * d numbers, twice.
"""

from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import LossFn
from fl_sketch.utils import checks
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np

from ...chen.statements.monitor import Gradients, Project


class Trajectory(NamedTuple):
  """A run of T rounds with K local steps; `...` are runs side by side.

  Attributes:
    params: f64[T + 1, ..., d], w^0 to w^T.
    models: f64[T, K, ..., clients, d], u_c before each local step.
    gradients: f64[T, K, ..., clients, d], of each client's loss there.
  """

  params: np.ndarray
  models: np.ndarray
  gradients: np.ndarray


def trajectory(
  gradients: Gradients,
  project: Project,
  start: np.ndarray,
  *,
  client_lr: float,
  clients: int,
  rounds: int,
  local_steps: int = 1,
  server_lr: float = 1.0,
) -> Trajectory:
  """Plays Algorithm 1 of Song et al., arXiv:2210.08371, corrected.

  u_c from w by K steps of gradient descent, then w <- w - server_lr R^T R (mean
  of w - u_c): the operator that encodes decodes, as in our algorithm.

  >>> halves = lambda step, models: models
  >>> run = trajectory(
  ...   halves, lambda r, x: x, np.ones(1), client_lr=0.5, clients=2, rounds=3
  ... )
  >>> run.params.ravel().tolist()
  [1.0, 0.5, 0.25, 0.125]

  Args:
    gradients: such as `client_gradients`.
    project: such as `projection`.
    start: f[..., d], w^0.
    client_lr: step size.
    clients: who all take part with equal weights.
    rounds: T.
    local_steps: K.
    server_lr: 1 in the theorems.
  """
  checks.count('clients', clients)
  checks.count('local_steps', local_steps)
  w = np.asarray(start, np.float64)
  params, models, slopes = [w], [], []
  for r in range(checks.count('rounds', rounds)):
    u = np.repeat(w[..., None, :], clients, axis=-2)
    for k in range(local_steps):
      models.append(u)
      slopes.append(gradients(k, u))
      u = u - client_lr * slopes[-1]
    w = w - server_lr * project(r, (w[..., None, :] - u).mean(-2))
    params.append(w)
  steps = lambda xs: np.stack(xs).reshape(rounds, local_steps, *xs[0].shape)
  return Trajectory(np.stack(params), steps(models), steps(slopes))


def client_gradients(loss_fn: LossFn, batches: Any, like: Any) -> Gradients:
  """The gradients of a cohort's losses, of flat models f[..., clients, d].

  >>> loss_fn = lambda params, batch: 0.5 * jnp.sum((params - batch) ** 2)
  >>> of = client_gradients(loss_fn, jnp.ones((2, 1, 3)), jnp.zeros(3))
  >>> of(0, np.zeros((2, 3))).tolist()
  [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]

  Args:
    loss_fn: (params, batch) -> f32[].
    batches: leaves [clients, steps, ...], of a `rounds.Cohort`; local step k
      takes batch k, from the first again when they are used up.
    like: params, or their types.
  """
  dtype, unravel = _flat(like)
  flat_loss = lambda flat, batch: loss_fn(unravel(flat), batch)
  held = jax.tree.leaves(batches)[0].shape[1]

  @jax.jit
  def of(k, models):
    now = jax.tree.map(lambda x: jnp.asarray(x)[:, k], batches)
    return jax.vmap(jax.vmap(jax.grad(flat_loss)), (0, None))(models, now)

  def gradients(k, models):
    runs = models.reshape(-1, *models.shape[-2:]).astype(dtype)
    return np.float64(of(k % held, runs)).reshape(models.shape)

  return gradients


def projection(op: sketches.Sketch, keys: jax.Array, like: Any) -> Project:
  """The operator of every round, sketch and desketch, on flat vectors.

  >>> key = jax.random.key(0)
  >>> project = projection(sketches.identity(), key, jnp.zeros(3))
  >>> project(7, np.ones(3)).tolist()
  [1.0, 1.0, 1.0]

  Args:
    op: a linear operator.
    keys: key[...], the root of each run.
    like: params, or their types.
  """
  dtype, unravel = _flat(like)

  @jax.jit
  def of(keys, r, x):
    def one(key, x):
      key, tree = keys_lib.round_keys(key, r).round, unravel(x)
      return ravel_pytree(op.desketch(key, op.sketch(key, tree), tree))[0]

    return jax.vmap(one)(keys, x)

  def project(r, x):
    runs = x.reshape(-1, x.shape[-1]).astype(dtype)
    return np.float64(of(keys.reshape(-1), r, runs)).reshape(x.shape)

  return project


def _flat(like):
  """The dtype of flat models, float32 at least, and their unravel."""
  flat, unravel = ravel_pytree(like)
  return jnp.promote_types(flat.dtype, jnp.float32), unravel
