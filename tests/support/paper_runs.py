"""NumPy twins, float64, of iterative sketching and SAFL, with their steps."""

from typing import NamedTuple

from fl_sketch.rounds import keys as keys_lib
import jax
from jax.flatten_util import ravel_pytree
import numpy as np
from papers.chen.statements import monitor


class Trajectory(NamedTuple):
  """A run of T rounds with K local steps; `...` are runs side by side."""

  params: np.ndarray  # [T + 1, ..., d], w^0 to w^T
  models: np.ndarray  # [T, K, ..., clients, d], u_c before each local step
  gradients: np.ndarray  # [T, K, ..., clients, d], of each client's loss there


def iterative_sketching(
  gradients, project, start, *, client_lr, clients, rounds, local_steps=1,
  server_lr=1.0,
) -> Trajectory:  # fmt: skip
  """Algorithm 1 of Song et al., corrected: what encodes decodes."""
  w = np.asarray(start, np.float64)
  params, models, slopes = [w], [], []
  for r in range(rounds):
    u = np.repeat(w[..., None, :], clients, axis=-2)
    for k in range(local_steps):
      models.append(u)
      slopes.append(gradients(k, u))
      u = u - client_lr * slopes[-1]
    w = w - server_lr * project(r, (w[..., None, :] - u).mean(-2))
    params.append(w)
  steps = lambda xs: np.stack(xs).reshape(rounds, local_steps, *xs[0].shape)
  return Trajectory(np.stack(params), steps(models), steps(slopes))


def safl(run, gradients, project, start, noise=None) -> monitor.Trajectory:
  """SAFL with AMSGrad, without bias correction; noise is of (round, step)."""
  x = np.asarray(start, np.float64)
  m = v = largest = np.zeros_like(x)
  params, rows = [x], []
  for r in range(run.rounds):
    u, clean = np.repeat(x[None], run.clients, axis=0), 0.0
    for k in range(run.local_steps):
      exact = gradients(k, u)
      clean += run.client_lr * exact.mean(0)
      noisy = exact if noise is None else exact + noise(r, k)
      u = u - run.client_lr * noisy
    estimate = project(r, (x[None] - u).mean(0))
    m = run.b1 * m + (1 - run.b1) * estimate
    v = 0.999 * v + (1 - 0.999) * estimate**2
    largest = np.maximum(largest, v)
    x = x - run.server_lr * m / (np.sqrt(largest) + run.eps)
    params.append(x)
    rows.append((clean, estimate, m, largest))
  columns = map(np.stack, zip(*rows, strict=True))
  return monitor.Trajectory(np.stack(params), *columns)


class Monitored(NamedTuple):
  """What the lemmas of Chen et al. bound, the largest of all rounds."""

  projection: float  # of |<V_t^-1/2 m_t, v_j>|, Lemma 3.4
  preconditioner: float  # of ||g||^2 / (g^T V_{t-1}^-1/2 g), Lemma 3.5
  martingale: float  # of the absolute partial sums, Lemma 3.6
  gradient_squared: float  # of ||grad L(x_t)||^2, Theorem 4.4
  mean: float  # of the same over all rounds, not its largest


def monitored(run, trajectory, gradients, basis=None) -> Monitored:
  """Of gradients f[T, d] at x_0 to x_{T-1}; a v_j is a column, or an axis."""
  now, before = monitor.inverse_roots(run, trajectory)
  step = now * trajectory.momentum
  along = step if basis is None else step @ basis
  squares = np.square(gradients)
  errors = gradients * before * (trajectory.estimates - trajectory.clean)
  norms, weighted = squares.sum(1), (squares * before).sum(1)
  return Monitored(
    projection=float(np.abs(along).max()),
    preconditioner=float((norms / np.maximum(weighted, 1e-300)).max()),
    martingale=float(np.abs(errors.sum(1).cumsum()).max()),
    gradient_squared=float(norms.max()),
    mean=float(norms.mean()),
  )


def projection(op, keys, like):
  """R^T R of every round, for key[...], the root of each run."""
  _, unravel = ravel_pytree(like)

  @jax.jit
  def of(keys, r, x):
    def one(key, x):
      key, tree = keys_lib.round_keys(key, r).round, unravel(x)
      return ravel_pytree(op.desketch(key, op.sketch(key, tree), tree))[0]

    return jax.vmap(one)(keys, x)

  def project(r, x):
    runs = x.reshape(-1, x.shape[-1]).astype(np.float32)
    return np.float64(of(keys.reshape(-1), r, runs)).reshape(x.shape)

  return project
