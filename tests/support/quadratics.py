"""Runs recorded round by round, on quadratics; and a loss that is linear."""

import functools
from typing import Any

import cases
from fl_sketch import algorithms, codecs, rounds, sketches
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np

CLIENTS, D, STEPS = 4, 16, 5
COUNT = sketches.count_sketch(3, 4)
BEST = np.full(D, 1 / D**0.5, np.float32)


def loss_fn(params, batch):
  """0.5 (w - c)' diag(h) (w - c) for the client's own (c, h), f32[1, D]."""
  center, curvature = batch
  return 0.5 * (curvature * (params['w'][None] - center) ** 2).sum()


def heterogeneous() -> rounds.Cohort:
  """All clients, full batches; the optimum of their mean is `BEST`."""
  rng = np.random.default_rng(0)
  curvature = rng.uniform(0.3, 2.0, (CLIENTS, D))
  center = rng.standard_normal((CLIENTS, D))
  best = (curvature * center).sum(0) / curvature.sum(0)
  return cohort(center + BEST[None] - best[None], curvature)


def cohort(*leaves: Any) -> rounds.Cohort:
  """All clients with one batch each, from trees of leaves [clients, ...]."""
  one_batch = lambda x: x.astype(np.float32)[:, None, None]
  batches = jax.tree.map(one_batch, leaves)
  ids = np.arange(len(jax.tree.leaves(leaves)[0]), dtype=np.int32)
  return rounds.Cohort(ids, np.ones(len(ids), np.float32), batches)


def play(
  name, cohorts, count=None, best=BEST, loss_fn=loss_fn, client_lr=0.2,
  server_lr=0.3, clip_norm=None, **options,
):  # fmt: skip
  """The last state of cohorts [rounds, ...] or one; its distances to `best`."""
  make = algorithms.make(name, loss_fn, **options)
  numbers = client_lr, server_lr, clip_norm
  hp = algorithms.Hyper(*(x if x is None else jnp.float32(x) for x in numbers))
  mesh = mesh_lib.cohort_mesh(1)
  round_fn = rounds.run_round(make, mesh, clients_per_step=None)

  def step(state, cohort):
    cohort = cohorts if count else cohort
    state, _ = round_fn(hp, state, cohort, cases.KEY)
    return state, state.params['w']

  start = rounds.init(make(hp), {'w': jnp.zeros(len(best))}, CLIENTS)
  over = None if count else cohorts
  run = jax.jit(lambda state: jax.lax.scan(step, state, over, length=count))
  state, params = jax.device_get(run(mesh_lib.place(mesh, start)))
  gap = np.linalg.norm(np.float64(params) - best[None], axis=1)
  return state, gap / np.linalg.norm(best)


def independent_runs(make, cohort, count, record, **options):
  """(hp, w_0, keys) -> record(state) after each round of a run for each key."""
  mesh = mesh_lib.cohort_mesh(1)
  round_fn = rounds.run_round(make, mesh, clients_per_step=None, **options)

  def one(hp, start, key):
    def step(state, _):
      state, _ = round_fn(hp, state, cohort, key)
      return state, record(state)

    state = rounds.init(make(hp), {'w': start}, len(cohort.ids))
    return jax.lax.scan(step, state, length=count)[1]

  return jax.vmap(one, (None, None, 0))


# Gradient tracking finds the optimum of heterogeneous clients.
TRACKING = {
  'privix': ('fedsketchgate', {'sketch': COUNT}),
  'heaprix': ('fedsketchgate', {'sketch': COUNT, 'k': 4}),
  'fedcomgate': ('fedcomgate', {'codec': codecs.rand_k(8)}),
  'scaffold': ('scaffold', {'population': CLIENTS}),
  'feddyn': (
    'feddyn',
    {'population': CLIENTS, 'alpha': jnp.float32(0.5), 'server_lr': 1.0},
  ),
}


@functools.cache
def tracked(name, **options):
  """Gaps after every round, and the clients' variates at the end."""
  name, case = TRACKING[name]
  options |= case | {'local_steps': STEPS}
  state, gap = play(name, heterogeneous(), 200, **options)
  return gap, rounds.state_of(state.protocol, comms.PerClient).value['w']


def linear_loss(params, batch):
  """A loss whose gradient depends on the batch alone."""
  x, y = batch
  return jnp.mean((x @ params['w'] + params['b'][None]) * y)


def linear(name, **options):
  return algorithms.make(name, linear_loss, **options)
