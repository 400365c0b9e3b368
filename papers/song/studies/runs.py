"""Iterative sketching on problems whose constants are known."""

from collections.abc import Callable, Sequence
import functools
import inspect
from typing import Any, NamedTuple

from fl_sketch import algorithms, sketches
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...common import programs
from ..statements import convergence as song

_CLIENTS, _D, _B = 4, 32, 8
SIZES = {'clients': _CLIENTS, 'd': _D, 'b': _B}  # of `ratios`


def verified(op: sketches.Sketch, dimension: int, draws: int) -> dict[str, Any]:
  """Verifies an operator by `sketches.verify` and returns it as JSON."""
  report = sketches.verify(op, dimension, jax.random.key(0), draws=draws)
  moments = [r for r in report.rows if r.quantity.startswith('second moment')]
  return {'ok': report.ok, 'moments': [row._asdict() for row in moments]}


class Problem(NamedTuple):
  """Losses of the clients, (w, their data) -> f32[], and their constants."""

  loss_fn: Callable
  data: Tree  # leaves [clients, ...]
  value: Callable[[np.ndarray], np.ndarray]  # f64[..., d] -> f - f*
  start: np.ndarray
  constants: dict[str, float]
  slopes: Callable | None = None  # f64[..., d] -> |grad f|^2, if not convex


class Case(NamedTuple):
  """A theorem on a problem, with K local steps."""

  name: str  # of the theorem
  text: str
  bound: Callable[..., float]
  problem: Callable[[], Problem]
  local_steps: int
  mean_model: bool  # whether the bound is on the mean of the models


def quadratic(
  curvature: np.ndarray, centers: np.ndarray | None = None
) -> Problem:
  """Returns the problem (w - x_c)' H (w - x_c) / 2, H diagonal, from w = 1.

  The curvature is f64[d], and the centers x_c, or zeros, are f64[clients, d].
  """
  if centers is None:
    centers = np.zeros((_CLIENTS, len(curvature)))
  best, bent = centers.mean(0), curvature.astype(np.float32)
  spread = curvature * (best - centers)
  return Problem(
    lambda w, x: 0.5 * jnp.sum(bent * (w - x[0]) ** 2),
    centers[:, None].astype(np.float32),
    lambda w: 0.5 * ((w - best) ** 2 @ curvature),
    np.ones(len(curvature)),
    {
      'smoothness': float(curvature.max()),
      'strong_convexity': float(curvature.min()),
      'distance_squared': float(((1 - best) ** 2).sum()),
      'heterogeneity': float((spread**2).sum(1).mean()),
      'gap': float(0.5 * (1 - best) ** 2 @ curvature),
    },
  )


def quadratics() -> Problem:
  """Returns quadratics of curvatures 0.5 to 1, a center for each client."""
  rng = np.random.default_rng(0)
  centers = 0.1 * rng.standard_normal((_CLIENTS, _D))
  return quadratic(np.linspace(0.5, 1.0, _D), centers)


def logistic() -> Problem:
  """Returns a logistic regression of noisy labels, 64 samples a client."""
  rng = np.random.default_rng(1)
  x = rng.standard_normal((_CLIENTS, 64, _D)) / _D**0.5
  teacher = 3 * rng.standard_normal(_D)
  y = np.where(
    rng.random((_CLIENTS, 64)) < 1 / (1 + np.exp(-x @ teacher)), 1, -1
  )
  signed = (x * y[..., None]).reshape(-1, _D)

  value = lambda w: np.logaddexp(0, -w @ signed.T).mean(-1)
  slope = lambda w, rows: -(rows / (1 + np.exp(rows @ w))[:, None]).mean(0)
  best = scipy.optimize.minimize(
    value, np.zeros(_D), jac=lambda w: slope(w, signed), tol=1e-12
  ).x
  own = np.stack([slope(best, s) for s in signed.reshape(_CLIENTS, 64, _D)])
  loss_fn = lambda w, s: jnp.mean(jax.nn.softplus(-s[0] @ w))
  smoothness = max(np.linalg.eigvalsh(c.T @ c).max() / 4 / 64 for c in x)
  return Problem(
    loss_fn,
    signed.reshape(_CLIENTS, 1, 64, _D).astype(np.float32),
    lambda w: value(w) - value(best),
    np.zeros(_D),
    {
      'smoothness': float(smoothness),
      'distance_squared': float((best**2).sum()),
      'heterogeneity': float((own**2).sum(1).mean()),
    },
  )


def bumps() -> Problem:
  """Returns x^2 / (1 + x^2) of each coordinate's offset from each center."""
  centers = np.random.default_rng(2).standard_normal((_CLIENTS, _D))
  off = lambda w: w[..., None, :] - centers
  losses = lambda w: (off(w) ** 2 / (1 + off(w) ** 2)).mean(-2)
  slope = lambda w: (2 * off(w) / (1 + off(w) ** 2) ** 2).mean(-2)
  grid = np.linspace(centers.min(), centers.max(), 20_001)
  least = losses(np.tile(grid[:, None], _D)).min(0).sum()
  value = lambda w: losses(w).sum(-1) - least
  start = np.full(_D, 1.5)
  steepest = 3**1.5 / 8 * _D**0.5  # at an offset of 3^-1/2 everywhere
  return Problem(
    lambda w, x: jnp.sum((w - x[0]) ** 2 / (1 + (w - x[0]) ** 2)),
    centers[:, None].astype(np.float32),
    value,
    start,
    {
      'smoothness': 2.0, 'gap': float(value(start)), 'gradient_bound': steepest
    },
    lambda w: (slope(w) ** 2).sum(-1),
  )  # fmt: skip


CASES = (
  Case('E1', 'Theorem E.1, quadratics, K = 1',
       song.single_step_strongly_convex, quadratics, 1, False),
  Case('F9', 'Theorem 5.1, quadratics, K = 4',
       song.strongly_convex, quadratics, 4, False),
  Case('E2', 'Theorem E.2, logistic regression, K = 1',
       song.single_step_convex, logistic, 1, True),
  Case('F7', 'Theorem 5.3, logistic regression, K = 4',
       song.convex, logistic, 4, True),
  Case('E3', 'Theorem E.3, bumps, K = 1',
       song.single_step_nonconvex, bumps, 1, False),
  Case('G2', 'Theorem G.2 as corrected, bumps, K = 4',
       song.nonconvex, bumps, 4, False),
)  # fmt: skip


def ratios(case: Case, rounds: int, seeds: Sequence[int]) -> list[list[float]]:
  """Measures the gap over the bound: a list of all rounds for each seed.

  Without convexity it is the mean squared gradient so far, which is no less
  than the least.
  """
  problem, alpha = case.problem(), _D / _B - 1
  steps, smoothness = case.local_steps, problem.constants['smoothness']
  own: dict[str, Any] = {'alpha': alpha, 'local_steps': steps}
  client_lr = song.largest_step(case.name, smoothness=smoothness, **own)
  constants = problem.constants | own | {'client_lr': client_lr}
  names = inspect.signature(case.bound).parameters.keys() & constants.keys()
  path = play(problem, sketches.srht(_B), client_lr, steps, rounds, seeds)
  so_far = np.arange(1, rounds + 2)
  if case.mean_model:
    path = np.cumsum(path, axis=1) / so_far[:, None]
  if problem.slopes:
    measured = np.cumsum(problem.slopes(path), axis=1) / so_far
  else:
    measured = problem.value(path)
  bound = functools.partial(case.bound, **{k: constants[k] for k in names})
  bounds = [bound(t) for t in range(1, rounds + 1)]
  return (measured[:, 1:] / bounds).tolist()


def play(
  problem: Problem,
  op: sketches.Sketch,
  client_lr: float,
  local_steps: int,
  rounds: int,
  seeds: Sequence[int],
) -> np.ndarray:
  """Returns each round's model, the start first: f64[seeds, rounds + 1, d]."""
  make = algorithms.make('iterative_sketching', problem.loss_fn, sketch=op)
  hp = algorithms.Hyper(jnp.float32(client_lr), jnp.float32(1))
  batches = np.repeat(problem.data[:, None], local_steps, axis=1)
  start = jnp.asarray(problem.start, jnp.float32)

  def one(key):
    state, play_round = programs.everybody(make, _CLIENTS)(hp, key, start)

    def step(state, _):
      state, _ = play_round(state, batches)
      return state, state.params

    return jax.lax.scan(step, state, None, length=rounds)[1]

  path = jax.jit(jax.vmap(one))(jax.vmap(jax.random.key)(jnp.asarray(seeds)))
  first = np.broadcast_to(problem.start, (len(seeds), 1, len(problem.start)))
  return np.concatenate([first, np.asarray(path, np.float64)], axis=1)
