"""Das et al.: clients with convex losses, and their private rounds in NumPy."""

from collections.abc import Callable
import functools
from typing import NamedTuple

from fl_sketch.data import synthetic
from fl_sketch.utils import checks
import numpy as np
from papers.das.statements import lemmas, rates as das
import pytest
from scipy import optimize, special


def square(x):
  return (x**2).sum(-1)


class Clients(NamedTuple):
  """n convex losses on R^d, at points [..., n, d], one for each."""

  value: Callable[[np.ndarray], np.ndarray]  # -> [..., n]
  gradient: Callable[[np.ndarray], np.ndarray]  # -> [..., n, d]
  smoothness: float
  w_star: np.ndarray
  gaps: np.ndarray
  lipschitz: float = np.inf

  def start(self, distance):
    """A point at this distance from w*."""
    return self.w_star + distance / np.sqrt(len(self.w_star))

  def excess(self, w):
    """f_i(w) - f_i(w*) at points [..., d]: [..., n]."""
    return self.value(w[..., None, :]) - self.value(self.w_star[None])

  def steepness(self, w):
    """|grad f_i| at points [..., d]: [..., n]."""
    return np.linalg.norm(self.gradient(w[..., None, :]), axis=-1)

  def path(self, w, client_lr, steps):
    """Points and gradients of local descent from [..., d], each a list."""
    points, gradients = [w[..., None, :]], []
    for _ in range(steps):
      gradients.append(self.gradient(points[-1]))
      points.append(points[-1] - client_lr * gradients[-1])
    return points, gradients

  def update(self, w, s):
    """u_i of a round from [..., d]: [..., n, d]."""
    return np.sum(self.path(w, s.client_lr, s.local_steps)[1], 0)


@functools.cache
def quadratics(seed=0, population=12, dimension=8, rank=4):
  """Those of the paper, fewer and smaller."""
  data = synthetic.quadratics(seed, population, dimension, rank).data
  factor, optimum = (data[x].astype(float) for x in ('factor', 'optimum'))
  curved = factor @ factor.swapaxes(1, 2)
  w_star = np.linalg.solve(
    curved.sum(0), np.einsum('nde,ne->d', curved, optimum)
  )
  gradient = lambda w: np.einsum('nde,...ne->...nd', curved, w - optimum)
  value = lambda w: 0.5 * (gradient(w) * (w - optimum)).sum(-1)
  smoothness = float(np.linalg.eigvalsh(curved).max())
  root = np.einsum('ndr,nd->nr', factor, w_star[None] - optimum)
  gaps = 0.5 * (root**2).sum(1)
  return Clients(value, gradient, smoothness, w_star, gaps)


def separate(value, gradient, count):
  """The losses of the first clients: w -> (f_i(w), its gradient)."""
  one = lambda i: lambda w: (value(w[None])[i], gradient(w[None])[i])
  return [one(i) for i in range(count)]


@functools.cache
def logistic():
  """Six clients with 20 labelled points each, of norm 1 at most."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal((6, 20, 5))
  x /= np.linalg.norm(x, axis=-1).max()
  teacher = 3 + 2 * rng.standard_normal((6, 1, 5))
  positive = rng.random((6, 20)) < special.expit((teacher * x).sum(-1))
  x *= np.where(positive, 1, -1)[..., None]
  margins = lambda w: np.einsum('nmd,...nd->...nm', x, w)
  slope = lambda w: -special.expit(-margins(w)) / 20
  value = lambda w: np.logaddexp(0, -margins(w)).mean(-1)
  gradient = lambda w: np.einsum('...nm,nmd->...nd', slope(w), x)
  smoothness = float(np.linalg.eigvalsh(x.swapaxes(1, 2) @ x / 80).max())
  mean = lambda w: (value(w[None]).mean(), gradient(w[None]).mean(0))
  w_star = optimize.minimize(mean, np.zeros(5), jac=True, tol=1e-12).x
  gaps = lemmas.heterogeneity_gaps(separate(value, gradient, 6), w_star)
  lipschitz = np.linalg.norm(x, axis=-1).mean(-1).max()
  return Clients(value, gradient, smoothness, w_star, gaps, lipschitz)


PROBLEMS = {'quadratics': quadratics, 'logistic': logistic}
BOUNDS = 'clip', 'normalize'
each_problem = pytest.mark.parametrize('problem', PROBLEMS)
each_bound = pytest.mark.parametrize('bound', BOUNDS)


def bowls(low):
  """Clients with full eigenvalues between `low` and 1, and many points."""
  rng = np.random.default_rng(0)
  turn = np.linalg.qr(rng.standard_normal((4, 6, 6)))[0]
  curved = (turn * np.linspace(low, 1, 6)) @ turn.swapaxes(1, 2)
  gradient = lambda w: np.einsum('nde,...ne->...nd', curved, w)
  value = lambda w: 0.5 * (gradient(w) * w).sum(-1)
  w = rng.standard_normal((300, 6))
  w /= np.linalg.norm(w, axis=1, keepdims=True)
  return Clients(value, gradient, 1, np.zeros(6), np.zeros(4)), w


def schedule(smoothness, distance, **spec) -> das.Schedule:
  """The schedule with gamma = L `distance`, and K for an alpha of about 1."""
  spec = {'gamma': smoothness * distance, 'largest_gap': 0.0} | spec
  noise = spec['clip'] * spec['local_steps'] * spec['rho'] ** 2
  rounds = checks.ceil(2 * spec['gamma'] / noise)
  return das.schedule(smoothness=smoothness, rounds=rounds, **spec)


class Run(NamedTuple):
  """What a trajectory shows, by round, draw and client."""

  w: np.ndarray  # [rounds + 1, draws, d]
  excess: np.ndarray  # [rounds + 1, draws, clients], f_i(w) - f_i(w*)
  norms: np.ndarray  # [rounds, draws, clients], |u_i|

  def left(self, s, clients, bound='clip', form='corrected'):
    """The left side of the theorem, f64[rounds, draws]."""
    numbers = s, self.excess[:-1], self.norms, clients.gaps
    if bound == 'clip':
      return das.clip_left(*numbers)
    return das.normalize_left(*numbers, form=form)

  def mean_excess(self):
    """Of f, over the rounds: f64[draws]."""
    return self.excess[:-1].mean((0, 2))


def watch(clients, s, w):
  """The `Run` of f64[rounds + 1, draws, d]."""
  norms = np.linalg.norm(clients.update(w[:-1], s), axis=-1)
  return Run(w, clients.excess(w), norms)


def bounded(u, s, bound):
  """Updates clipped at C, or normalised to it."""
  scale = s.clip_norm / np.linalg.norm(u, axis=-1, keepdims=True)
  return u * (scale if bound == 'normalize' else np.minimum(1, scale))


def play(clients, s, start, bound='clip', cohort=None, draws=200):
  """A `Run` of Algorithm 1 or 2; a Poisson cohort if of an expected size."""
  rng = np.random.default_rng(0)
  n, d = len(clients.gaps), len(start)
  w = [np.broadcast_to(start, (draws, d))]
  for _ in range(s.rounds):
    g = bounded(clients.update(w[-1], s), s, bound)
    if cohort is not None:
      g *= (rng.random((draws, n, 1)) < cohort / n) * n / cohort
    noise = s.noise_stddev(d) * rng.standard_normal((draws, d))
    w.append(w[-1] - s.client_lr * (g.mean(1) + noise))
  return watch(clients, s, np.array(w))
