"""Reference trajectories: noise and hash functions come from elsewhere."""

import functools
import math

import cases
from fl_sketch import algorithms, experiment, rounds, sketches
from fl_sketch.privacy import accounting
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import log
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.test_private_runs import PRIVATE

pytestmark = pytest.mark.usefixtures('unproven')
TURNS, N, D, ROWS, COLS, STEPS = 3, 4, 12, 2, 3, 2
C, Z, LR, SERVER_LR = 0.7, 0.5, 0.2, 0.9
RNG = np.random.default_rng(3)
TARGETS = RNG.normal(size=(N, STEPS, 1, D))
BUCKETS = RNG.integers(0, COLS, (TURNS, ROWS, D))
SIGNS = RNG.choice([-1.0, 1.0], (TURNS, ROWS, D))
ON_SUM = RNG.normal(size=(TURNS, ROWS, COLS))
ON_EACH = RNG.normal(size=(TURNS, N, ROWS, COLS))
HYPER = algorithms.Hyper(
  *map(jnp.float32, (LR, SERVER_LR)),
  clip_norm=jnp.float32(C),
  noise_multiplier=jnp.float32(Z),
)


def loss_fn(w, target):
  return 0.5 * jnp.sum((w - target[0]) ** 2)


def clipped(x):
  return x * min(1.0, C / np.linalg.norm(x))


def reference(trust):
  """The trajectory in NumPy, f64[TURNS, D]."""
  w, path = np.zeros(D), []
  for r in range(TURNS):
    matrix = np.zeros((ROWS, COLS, D))
    for j in range(ROWS):
      matrix[j, BUCKETS[r, j], np.arange(D)] = SIGNS[r, j]
    matrix = matrix.reshape(-1, D)
    total = np.zeros(ROWS * COLS)
    for targets in TARGETS:
      u = w
      for target in targets:
        u = u - LR * (u - target[0])
      total += clipped(matrix @ (w - u))
    noise = ON_SUM[r] if trust == 'central' else ON_EACH[r].sum(0)
    mean = (total + Z * C * noise.ravel()) / N
    w = w - SERVER_LR * matrix.T @ mean / ROWS
    path.append(w)
  return np.stack(path)


def given(values, draw, like, stddev):
  """The noise of a draw, from f[C, ...] where clients add it."""
  one = values if draw.client is None else values[draw.client]
  return stddev * one.astype(like.dtype)


@pytest.mark.parametrize('trust', ['central', 'local'])
def test_a_trajectory_of_given_noise_and_hashes_is_numpys(trust):
  """Catches noise of another client, size or place, and hashes of a key."""
  mesh = mesh_lib.cohort_mesh(2)
  drawn = jnp.asarray(ON_SUM if trust == 'central' else ON_EACH)
  cohort = rounds.Cohort(np.arange(N), np.ones(N, 'f'), np.float32(TARGETS))

  def make(buckets, signs, values):
    op = sketches.from_hashes(buckets, signs, COLS, combine='mean')
    noise = functools.partial(given, values)
    release = private_mean.Release(N, noise=noise, trust=trust)
    options = {'sketch': op, 'privacy': release}
    return algorithms.make('iterative_sketching', loss_fn, **options)

  def step(state, this):
    round_fn = rounds.run_round(make(*this), mesh)
    rest = jax.random.key(0), None, jax.random.key(1)
    state, _ = round_fn(HYPER, state, cohort, *rest)
    return state, state.params

  every = jnp.asarray(BUCKETS), jnp.asarray(SIGNS), drawn
  first = make(*(x[0] for x in every))(HYPER)
  state = mesh_lib.place(mesh, rounds.init(first, jnp.zeros(D), N))
  _, path = cases.jit(lambda state: jax.lax.scan(step, state, every))(state)
  np.testing.assert_allclose(path, reference(trust), atol=1e-5)


def test_a_run_of_given_noise_has_no_epsilon():
  """Catches a statement of privacy about noise that anybody may know."""
  exp = experiment.build(PRIVATE)
  assert exp.guarantee is not None
  noise = lambda draw, like, stddev: jax.tree.map(jnp.zeros_like, like)
  release = private_mean.Release(float(exp.config.cohort), noise=noise)
  private = release.with_hyper(HYPER)
  assert private.mean(0).releases == private.uplink().releases == math.inf
  make = algorithms.make('dp_fedavg', loss_fn, privacy=release)
  releases = make(exp.hyper).releases
  assert releases == math.inf
  refused = pytest.raises(
    accounting.UnsupportedAccountingError, match='injected'
  )
  with refused:
    experiment.guarantee_of(exp.config, make)
  with refused:
    log.epsilons_by_round(exp._replace(make=make))
  with pytest.raises((TypeError, ValueError), match='releases_per_step'):
    accounting.GaussianMechanism(1.0, 1, releases_per_step=releases)
