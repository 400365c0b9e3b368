"""A public sketch stretches some update: bounds must hold after it."""

import functools

import cases
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import sums
from fl_sketch.privacy.mechanisms.private_mean import Release
from fl_sketch.rounds import (
  aggregation,
  keys as keys_lib,
  mesh as mesh_lib,
  transforms as t,
)
from fl_sketch.rounds.algorithm import federated
import jax
import jax.numpy as jnp
import numpy as np
import operators
import private_cases
import pytest

C, R = private_cases.C, 3.0
HP = private_cases.QUIET
TREE = jax.tree.map(np.asarray, operators.TREE)
STARTS = np.cumsum([x.size for x in jax.tree.leaves(TREE)])[:-1]
KEYS = keys_lib.round_keys(cases.KEY, 0)
RELEASE = Release(R)
FAST = ('mean', 'srht')
each = cases.by_name(operators.LINEAR, {*operators.LINEAR} - {*FAST})


def trees(rows):
  """f32[n, d] -> leaves [n, ...]."""
  leaves, treedef = jax.tree.flatten(TREE)
  parts = np.split(np.float32(rows), STARTS, axis=1)
  split = zip(parts, leaves, strict=True)
  return treedef.unflatten([p.reshape(-1, *x.shape) for p, x in split])


def real(table):
  x = operators.vector(table)
  return np.concatenate([x.real, x.imag]) if np.iscomplexobj(x) else x


@functools.cache
def matrix(name):
  """f64[b, d], the operator of this round."""
  op = operators.OPERATORS[name].op
  sketch = jax.jit(jax.vmap(op.sketch, (None, 0)))
  tables = jax.device_get(sketch(KEYS.round, trees(np.eye(64))))
  rows = [real(jax.tree.map(lambda x, i=i: x[i], tables)) for i in range(64)]
  return np.float64(rows).T


def adversaries(name):
  """f32[n, 64], of norm C and far above it."""
  r = matrix(name)
  fullest = r[np.square(r).sum(1).argmax()]
  top = np.linalg.svd(r)[2][0]
  units = [x / np.linalg.norm(x) for x in (top, fullest)]
  return np.array([a * C * u for a in (1, 50) for u in units], 'f4')


def moved(link, updates):
  """How far each of the updates moves what a round broadcasts."""
  send = lambda params, batches, key, correction: (batches, {})
  make = lambda hp: federated(send, *link(hp), t.broadcast())
  step = rounds.cohort_step(make, mesh_lib.cohort_mesh(1))
  others = np.random.default_rng(0).normal(size=(2, 64))
  state = rounds.init(make(HP), TREE, 3)

  def one(update):
    stack = lambda x, u: jnp.concatenate([x, u[None]])
    batches = jax.tree.map(stack, trees(others), update)
    mean = lambda last: step(
      HP,
      state,
      rounds.Cohort(jnp.arange(3), jnp.array([1.0, 1.0, last]), batches),
      cases.KEY,
      None,
      jax.random.key(1),
    )[0]
    return jax.tree.map(jnp.subtract, mean(1.0), mean(0.0))

  gaps = cases.jit(lambda x: jax.lax.map(one, x))(trees(updates))
  gaps = jax.device_get(gaps)
  rows = [jax.tree.map(lambda x, i=i: x[i], gaps) for i in range(len(updates))]
  return np.array([np.linalg.norm(np.float64(real(x))) for x in rows])


def bound_first(op):
  """The wrong order, made of links that know nothing of privacy."""
  clip = lambda u, *_, **__: sums.clip_by_l2_norm(u, C)[0]
  return lambda hp: (
    t.per_client(t.stateless(clip)),
    t.sketch(op),
    aggregation.mean_over_cohort(denominator=R)._replace(releases=1),
  )


@pytest.mark.representatives('srht')
@pytest.mark.covers('S0-Alg2b')
@each
def test_no_update_moves_a_table_by_more_than_its_share(name):
  """Catches the order clip, sketch, noise: off by the norm of R."""
  op = operators.OPERATORS[name].op
  updates = adversaries(name)
  private = lambda hp: aggregation.mean_over_cohort(
    privacy=RELEASE.with_hyper(hp)
  )
  right = moved(lambda hp: (t.sketch(op), private(hp)), updates)
  assert (right <= C / R * (1 + 1e-5)).all()
  assert (right >= C / R * (1 - 1e-4)).all()  # they are long enough
  stretch = np.linalg.norm(matrix(name), 2)
  wrong = moved(bound_first(op), updates)
  assert wrong.max() == pytest.approx(stretch * C / R, rel=1e-4)
  if name == 'identity':
    assert stretch == pytest.approx(1)
  else:
    assert wrong.max() > 1.3 * C / R
    assert (wrong > 1.05 * C / R).all()  # the fullest bucket is enough
