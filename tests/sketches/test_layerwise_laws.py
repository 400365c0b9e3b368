"""Laws of operators that sketch layer by layer."""

from typing import Any, NamedTuple

from fl_sketch import sketches
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, TREE, vector
import pytest

from tests.sketches import test_layerwise

promises_of: Any = sketches.properties
X = vector(TREE).astype(np.float64)


class Facts(NamedTuple):
  """What is claimed of one operator at TREE."""

  op: sketches.Sketch
  floats: int
  alpha: Any  # of TREE: E||desketch(sketch(x))||^2 / ||x||^2 - 1


def alpha_of(factory, sizes):
  """Of TREE, whose leaves' second moments add up."""
  moment = 0.0
  for x, b in zip(jax.tree.leaves(TREE), sizes, strict=True):
    alpha = promises_of(factory(b)).alpha(x.size)
    moment += np.sum(np.square(x)) * (1 if b == x.size else 1 + alpha)
  return moment / (X @ X) - 1


FACTS = {
  name: Facts(op, sum(sizes), alpha_of(factory, sizes))
  for name, (op, factory, sizes) in test_layerwise.OPERATORS.items()
}
every = pytest.mark.parametrize('name', FACTS)
# Others differ by what is combined.
one = pytest.mark.representatives('proportional')


@every
def test_promises(name):
  op, floats, _ = FACTS[name]
  promises, table = promises_of(op), op.zero_table(TREE)
  assert sum(x.size for x in jax.tree.leaves(table)) == floats
  assert promises.floats(TREE) == floats
  assert promises.linear
  assert promises.adjoint_scale == pytest.approx(1.0)
  assert None not in (
    promises.alpha, promises.coordinate_wise, promises.variance
  )  # fmt: skip
  operators.bad_trees(op)
  wrong = jax.tree.map(lambda x: x[..., :-1], table)
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, wrong, TREE)


@one
@every
def test_desketch_is_the_adjoint(name):
  operators.adjoint(FACTS[name].op, atol=2e-5)


@one
@every
def test_one_hash_for_the_whole_cohort(name):
  operators.one_hash(FACTS[name].op)


@one
@pytest.mark.parametrize('name', [n for n in FACTS if n != 'explicit'])
def test_structure_and_dtype(name):
  """Not where sizes are those of TREE's leaves."""
  operators.structure(FACTS[name].op)


@one
@pytest.mark.covers('S4-Layer')
@every
def test_moments(name):
  """Lack of bias, the second moment, and a bound of the variances of pairs."""
  # Of an operator, 64 means within 6 standard errors, one, and 4 from above
  # and from below: 1.5e-7 to miss one.
  op, _, alpha = FACTS[name]
  keys = jax.random.split(jax.random.key(1), 4000)
  fn = operators.jit(jax.vmap(operators.both(op), (0, None)))
  flat = [np.reshape(x, (4000, -1)) for x in jax.tree.leaves(fn(keys, TREE))]
  draws = np.concatenate(flat, axis=1).astype(np.float64)
  means, errors = operators.mean_and_error(draws)
  slack = 1e-6
  assert (np.abs(means - X) < 6 * errors + slack).all()
  promises = promises_of(op)
  ratio, error = operators.mean_and_error(np.square(draws).sum(1) / (X @ X))
  assert error < 0.02 * (1 + alpha)
  assert abs(ratio - 1 - alpha) < 6 * error + slack
  assert promises.alpha(TREE) >= alpha  # of the worst leaf
  bound = promises.coordinate_wise(TREE) / promises.floats(TREE)
  for h in (X, *np.random.default_rng(0).standard_normal((3, 64))):
    square, error = operators.mean_and_error(np.square((draws - X[None]) @ h))
    assert square < bound * (X @ X) * (h @ h) + 6 * error
    tree = ravel_pytree(TREE)[1](jnp.float32(h))
    assert abs(square - promises.variance(TREE, tree)) < 6 * error + 1e-4


@pytest.mark.nightly
def test_inside_shard_map_scan_and_vmap():
  operators.same_in_shards(FACTS['proportional'].op, atol=1e-5)
