"""Exact variances of operators, and the privacy of what is sketched."""

import functools
import itertools
from typing import Any

import cases
import exact_variances
from fl_sketch import runs, sketches
import jax
import jax.numpy as jnp
import numpy as np
import operators
from papers.common import tails
from papers.common.conditions import FORMS
import pytest

from tests.runs.test_account import quadratics as quadratics_config

# Fewer than 500 means in a test, to 6 standard errors: 2e-9 to miss one each.
KEYS = jax.random.split(jax.random.key(9), 6000)
D, B = 16, 4
G, H = np.random.default_rng(0).normal(size=(2, D))
VECTORS = np.stack([G, G + H, np.eye(D)[3], np.arange(D) < 5])


# Song et al., Lemmas D.12 to D.16, print upper bounds of the variances of
# h^T R^T R g that `exact_variances` has.
OPERATORS = {
  'gaussian': sketches.gaussian(B),
  'ams': sketches.ams(B),
  'srht': sketches.srht(B),
  'count_sketch': sketches.count_sketch(1, B, combine='mean'),
  'embedding_1': sketches.sparse_embedding(B, 2, kind='I'),
  'embedding_2': sketches.sparse_embedding(B, 2, kind='II'),
  'sampling': sketches.uniform_sampling(B),
}


def estimates(op):
  """f64[draws, vectors, D], of each vector under each key."""
  like = jax.ShapeDtypeStruct((D,), jnp.float32)
  one = jax.vmap(operators.both(op, like), (None, 0))
  run = cases.jit(jax.vmap(one, (0, None)))
  return np.asarray(run(KEYS, VECTORS.astype(np.float32)), np.float64)


@pytest.mark.parametrize('name', OPERATORS)
def test_exact_variances_and_projections(name):
  """Catches a variance that no estimate has, and bounds below it."""
  op = OPERATORS[name]
  variance = functools.partial(exact_variances.variance, op)
  promises: Any = op.properties
  draws = estimates(op)
  most = functools.partial(tails.coordinate_wise, promises.name, D, B)
  constants = [most(form=form) for form in FORMS]
  mean, error = operators.mean_and_error(draws)
  assert (np.abs(mean - VECTORS) < 6 * error + 1e-5).all()
  for (i, g), h in itertools.product(enumerate(VECTORS), VECTORS):
    mean, error = operators.mean_and_error(np.square((draws[:, i] - g) @ h))
    assert abs(mean - variance(g, h)) < 6 * error + 1e-4
    for a in constants:  # the variance is below what Lemmas D.12 to D.16 say
      assert variance(g, h) < a / B * (g @ g) * (h @ h) * (1 + 1e-12)
  # Remark D.10: a projection of rank 5 of an estimate of H + G.
  basis = np.linalg.qr(np.random.default_rng(1).normal(size=(D, 5)))[0]
  bound = promises.coordinate_wise(D) / B * np.square(VECTORS[1]).sum()
  for row in basis @ basis.T:
    assert variance(VECTORS[1], row) < bound * (row @ row)
  # The spike of Remark D.17: what is bounded for the others is d / b here.
  spike = 1 + variance(*VECTORS[[2, 2]])
  assert (spike > 0.8 * D / B) == (name == 'sampling')
  if name in ('gaussian', 'sampling'):  # whose corrected constant is met
    g = VECTORS[2]
    assert variance(g, g) == pytest.approx(constants[1] / B)


@pytest.mark.parametrize('before_sketch', [False, True])
def test_a_sketch_changes_no_epsilon(before_sketch):
  """Post-processing, Song et al., Lemma H.5; the clients' noise is the same."""
  dense = runs.account(quadratics_config())
  sketch = {'kind': 'block_cyclic', 'size': 20}
  fields = {'algorithm': 'iterative_sketching', 'sketch': sketch}
  c = quadratics_config(**fields, before_sketch=before_sketch)
  assert runs.account(c).mechanism == dense.mechanism
  assert runs.account(c).statement.epsilon == dense.statement.epsilon
