"""Problems on which the theorems of Song et al. are measured, in NumPy."""

from collections.abc import Callable
import functools
import inspect
from typing import Any, NamedTuple

import cases
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
import paper_runs
from papers.song.statements import convergence as song, lemmas

CLIENTS, D = 4, 16


class Problem(NamedTuple):
  """The mean f of the clients' losses, its minimum, and its constants."""

  value: Callable[[np.ndarray], np.ndarray]  # f - f* at points [..., d]
  gradients: Callable[[int, np.ndarray], np.ndarray]  # of (step, models)
  start: np.ndarray
  optimum: np.ndarray  # the nearest to the start if f is convex
  smoothness: float
  strong_convexity: float = 0.0
  gradient_bound: float = np.inf

  def constants(self) -> dict[str, Any]:
    """What the bounds ask for of a problem, by their names."""
    models = np.tile(self.optimum, (CLIENTS, 1))
    return {
      'gap': float(self.value(self.start)),
      'distance_squared': float(np.square(self.start - self.optimum).sum()),
      'heterogeneity': lemmas.heterogeneity(self.gradients(0, models)),
      'smoothness': self.smoothness,
      'strong_convexity': self.strong_convexity,
      'gradient_bound': self.gradient_bound,
    }

  def slopes(self, w):
    """||grad f||^2, of f[..., d]."""
    models = np.repeat(w[..., None, :], CLIENTS, axis=-2)
    return np.square(self.gradients(0, models).mean(-2)).sum(-1)


def quadratics(curvatures: np.ndarray, *, spread: float) -> Problem:
  """0.5 (w - x_c)' H_c (w - x_c), every H_c with these eigenvalues, f[d]."""
  rng = np.random.default_rng(0)
  d, rank = len(curvatures), int((curvatures > 0).sum())

  def reflection(n):
    v = rng.standard_normal(n)
    return np.eye(n) - 2 / (v @ v) * np.outer(v, v)

  onto, each = reflection(d)[:, :rank], []
  for _ in range(CLIENTS):
    basis = onto @ reflection(rank) if spread else onto
    each.append(basis * curvatures[:rank] @ basis.T)
  hessians = np.stack(each)
  centers = spread * rng.standard_normal((CLIENTS, d))
  pull = np.einsum('cij,cj->ci', hessians, centers)
  start, mean = rng.standard_normal(d), hessians.mean(0)
  push = onto.T @ (pull.mean(0) - mean @ start)
  optimum = start + onto @ np.linalg.solve(onto.T @ mean @ onto, push)
  return Problem(
    lambda w: 0.5 * ((w - optimum) @ mean * (w - optimum)).sum(-1),
    lambda step, u: (hessians @ u[..., None])[..., 0] - pull, start, optimum,
    curvatures.max(), curvatures.min(),
  )  # fmt: skip


def separable(loss, slope, smoothness, steepest, spread, far) -> Problem:
  """The mean over clients of sums of loss(w_i - x_ci), of one number each."""
  centers = spread * np.random.default_rng(0).standard_normal((CLIENTS, D))
  start = np.full(D, far)
  losses = lambda w: loss(w[..., None, :] - centers).mean(-2)
  grid = np.linspace(centers.min() - 1, centers.max() + 1, 20_001)
  each = losses(np.tile(grid[:, None], D))
  return Problem(
    lambda w: (losses(w) - each.min(0)).sum(-1),
    lambda step, u: slope(u - centers), start, grid[each.argmin(0)], smoothness,
    gradient_bound=steepest * D**0.5,
  )  # fmt: skip


def log_cosh(spread: float) -> Problem:
  """Convex, L = 1, and its slope is below 1."""
  loss = lambda x: np.logaddexp(x, -x) - np.log(2)
  return separable(loss, np.tanh, 1.0, 1.0, spread, 3.0)


def bumps(spread: float) -> Problem:
  """x^2 / (1 + x^2): not convex, L = 2, and its slope is below 0.65."""
  loss = lambda x: x**2 / (1 + x**2)
  slope = lambda x: 2 * x / (1 + x**2) ** 2
  return separable(loss, slope, 2.0, 0.6496, spread, 1.5)


SLOPING = np.geomspace(1, 0.1, D)
FLAT = np.append(np.geomspace(1, 0.003, 10), np.zeros(D - 10))
ROUND = quadratics(np.ones(D), spread=0.0)
ALIKE = quadratics(SLOPING, spread=0.0)
UNLIKE = quadratics(SLOPING, spread=1.0)
STRONG = ALIKE, UNLIKE
CONVEX = quadratics(FLAT, spread=0.0), quadratics(FLAT, spread=1.0), log_cosh(1)
NONCONVEX = bumps(0.0), bumps(1.0), log_cosh(0.0)

OPERATORS = {
  'srht': sketches.srht(4),
  'gaussian': sketches.gaussian(4),
  'count_sketch': sketches.count_sketch(1, 4, combine='mean'),
  'block_cyclic': sketches.block_cyclic(4),
}


class Player:
  """Plays one operator, many runs side by side, at a theorem's step size."""

  def __init__(self, op: sketches.Sketch, runs: int = 64):
    keys = jax.random.split(jax.random.key(5), runs)
    self.project = paper_runs.projection(op, keys, jnp.zeros(D))
    alpha = op.properties.alpha
    assert alpha is not None
    self.alpha = alpha(D)
    self.runs = runs

  def step(self, theorem, problem, local_steps=1):
    number = {'smoothness': problem.smoothness, 'alpha': self.alpha}
    return song.largest_step(theorem, local_steps=local_steps, **number)

  def play(self, problem, client_lr, rounds, local_steps=1):
    start = np.tile(problem.start, (self.runs, 1))
    run = problem.gradients, self.project, start
    length = {'rounds': rounds, 'local_steps': local_steps}
    return paper_runs.iterative_sketching(
      *run, client_lr=client_lr, clients=CLIENTS, **length
    )


FAST = 'srht', 'gaussian'
operators = cases.by_name(OPERATORS, {*OPERATORS} - {*FAST}, 'operator')
player = functools.cache(lambda name: Player(OPERATORS[name]))


def accepted(function, numbers):
  """Those of these numbers that are arguments of a function."""
  names = inspect.signature(function).parameters
  return {k: v for k, v in numbers.items() if k in names}


def mean_and_error(x):
  """Over runs, the last axis; and 5 standard errors: noise is above in 3e6."""
  return x.mean(-1), 5 * x.std(-1, ddof=1) / x.shape[-1] ** 0.5
