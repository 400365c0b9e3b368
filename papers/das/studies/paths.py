"""Rounds of Das et al.'s quadratics, many runs at once.

E full gradient steps on a quadratic have a closed form, so that a round costs
as much as one step; all else is the algorithm's own.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch import algorithms, rounds, runs
from fl_sketch.data import synthetic
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.rounds.algorithm import Local
from fl_sketch.runs import config as config_lib, noise_secret
import jax
import jax.numpy as jnp
import numpy as np

AT_ONCE = 36  # runs, whose states fit a cache


class Paths(NamedTuple):
  """Trajectories of runs of R rounds."""

  # F32[runs, R + 1, d], the parameters before each round and at the end.
  w: np.ndarray
  # F32[runs, R], the norm of the mean over the clients of g_i.
  signal: np.ndarray
  noise: np.ndarray  # f32[runs, R], the norm of what was added to that mean


def closed_form(client_lr: Any, steps: int) -> Local:
  r"""Local work: gradient steps on a quadratic, at once; eta < 1 / max(S).

  With :math:`A_i A_i^T = U S U^T`, :math:`w - w_E = U (1 - (1 - \eta S)^E) U^T
  (w - w_i^*)`; in float32 more exact than the steps. Batches are a single
  sample of `decomposed`. Das et al., arXiv:2106.07094, 5.3.

  >>> one = {'basis': jnp.ones((1, 1)), 'curvature': jnp.full(1, 0.5)}
  >>> batch = {k: v[None, None] for k, v in one.items()}
  >>> batch |= {'optimum': jnp.zeros((1, 1, 1))}
  >>> local = closed_form(1.0, steps=2)
  >>> local({'w': jnp.ones(1)}, batch, None, None)[0]['w'].tolist()
  [0.75]
  """

  def local(params, batches, key, drift):
    del key, drift
    one = jax.tree.map(lambda x: x[0, 0], batches)
    away = one['basis'].T @ (params['w'] - one['optimum'])
    done = -jnp.expm1(steps * jnp.log1p(-client_lr * one['curvature']))
    loss = (one['curvature'] * away**2).sum() / 2
    return {'w': one['basis'] @ (done * away)}, {'train_loss': loss}

  return local


def decomposed(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The data of `synthetic.quadratics`, A_i as basis and curvature.

  'basis' [n, d, rank] with orthonormal columns, 'curvature' [n, rank] and
  'optimum' [n, d], of the dtype of the data.
  """
  basis, spread, _ = np.linalg.svd(data['factor'], full_matrices=False)
  return {
    'basis': basis, 'curvature': spread**2, 'optimum': data['optimum'],
  }  # fmt: skip


def problem_of(
  seed: int, population: int, spread: float = 1.0
) -> synthetic.Quadratics:
  """The quadratics of a seed, whose optima are `spread` times as far apart.

  >>> problem_of(0, population=3, spread=0.0).w_star.any().item()
  False
  """
  drawn = synthetic.quadratics(seed, population)
  factor, optimum = drawn.data['factor'], drawn.data['optimum']
  data = {'factor': factor, 'optimum': np.float32(spread) * optimum}
  return synthetic.Quadratics(data, np.float32(spread) * drawn.w_star)


def play(
  config: Mapping[str, Any],
  values: Sequence[Mapping[str, Any]],
  signals: bool = True,
  spread: float = 1.0,
) -> Iterator[Paths]:
  """Plays runs that differ in numbers alone, some at once.

  Each has the noise that `sweep` gives it. Every round is played a second time
  without noise, which tells the two parts of its mean; without `signals` these
  are NaN, and runs take half the time. The config is a private one of
  'quadratics' with everybody in it, and `values` are the fields in which each
  run differs, ``start_scale`` among them; `spread` is that of `problem_of`.
  """
  c = config_lib.Config.from_mapping(config)
  exp, program = _program(dataclasses.replace(c, seed=0), signals)
  problem = problem_of(c.seed, c.population, spread)
  data = decomposed(problem.data)
  starts = []
  for some in values:
    fields = {k: v for k, v in some.items() if k != 'start_scale'}
    own = dataclasses.replace(c, **fields)
    hyper = runs.reconfigured(exp, own).hyper
    start = jnp.asarray(problem.start(c.seed, some.get('start_scale', 1.0)))
    noise_key = noise_secret.reproducible(own.noise_seed or 0, c.seed).noise_key
    starts.append((hyper, start, noise_key))
  for i in range(0, len(starts), AT_ONCE):
    part = starts[i : i + AT_ONCE]
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *part)
    yield Paths(*jax.device_get(program(data, *stacked)))


@functools.cache
def _program(c: config_lib.Config, signals: bool):
  """The experiment, and its runs as one compiled function."""
  exp, mesh = runs.build(c), mesh_lib.cohort_mesh()
  local = lambda hp: closed_form(hp.client_lr, c.local_steps)
  options = runs.algorithm_options(c)
  make = algorithms.make(c.algorithm, local=local, **options)
  round_fn = rounds.run_round(
    make, mesh, fetch=exp.fetch, clients_per_step=None
  )
  key = jax.random.key(c.key_seed)
  # Everybody takes part in every round: one cohort serves all.
  cohort = exp.sample(0, noise_secret.reproducible(0, c.seed).sampling_seed)

  def path(data, hp, start, noise_key):
    silent = hp._replace(noise_multiplier=jnp.float32(0))
    both = jax.tree.map(lambda *xs: jnp.stack(xs), hp, silent)
    twice = jax.vmap(round_fn, (0, *[None] * 5))

    def once(state, _):
      new = round_fn(hp, state, cohort, key, data, noise_key)[0]
      nan = jnp.float32(jnp.nan)
      return new, (new.params['w'], nan, nan)

    def step(state, _):
      new = twice(both, state, cohort, key, data, noise_key)[0]
      length = lambda a, b: jnp.linalg.norm(a - b) / hp.client_lr
      (w, v), u = new.params['w'], state.params['w']
      new = jax.tree.map(lambda x: x[0], new)
      return new, (w, length(u, v), length(v, w))

    state = rounds.init(make(hp), {'w': start}, c.population)
    body = step if signals else once
    w, signal, noise = jax.lax.scan(body, state, length=c.rounds)[1]
    return jnp.concatenate([start[None], w]), signal, noise

  return exp, jax.jit(jax.vmap(path, (None, 0, 0, 0)))


def excess(problem: synthetic.Quadratics, w: np.ndarray) -> np.ndarray:
  """f(w) - f(w*) = (w - w*)^T H (w - w*) / 2 of [..., d]; H: mean A_i A_i^T."""
  factor = problem.data['factor'].astype(float)
  rows = factor.swapaxes(0, 1).reshape(len(problem.w_star), -1)
  away = (w - problem.w_star).astype(float) @ (rows / len(factor) ** 0.5)
  return (away**2).sum(-1) / 2
