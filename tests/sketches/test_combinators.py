"""What operators made of other operators keep, and what they change."""

import math
from typing import Any, NamedTuple

import chex
from fl_sketch import sketches
from fl_sketch.sketches.combinators import composed, scaled, stacked
from fl_sketch.sketches.layerwise import layerwise
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, TREE, vector
import pytest
from refusals import refused_calls

from tests.sketches import test_layerwise

cyclic = sketches.block_cyclic
sample = sketches.uniform_sampling
count = sketches.count_sketch
mean = lambda rows, cols: count(rows, cols, combine='mean')
promises_of: Any = sketches.properties
X = vector(TREE).astype(np.float64)


class Facts(NamedTuple):
  """What is claimed of one operator at TREE."""

  op: sketches.Sketch
  floats: int
  alpha: Any = None  # of TREE: E||desketch(sketch(x))||^2 / ||x||^2 - 1
  scale: Any = 1.0  # of the adjoint; None: desketch is not linear


def alpha_of(factory, sizes):
  """Of TREE, whose leaves' second moments add up."""
  moment = 0.0
  for x, b in zip(jax.tree.leaves(TREE), sizes, strict=True):
    alpha = promises_of(factory(b)).alpha(x.size)
    moment += np.sum(np.square(x)) * (1 if b == x.size else 1 + alpha)
  return moment / (X @ X) - 1


FACTS = {
  'scaled': Facts(scaled(mean(4, 4), 3.0), 16, 63 / 16, 36.0),
  'scaled median': Facts(scaled(count(4, 4), 3.0), 16, None, None),
  'composed': Facts(
    composed(mean(2, 4), sample(32)), 8, 2 * (1 + 31 / 8) - 1, 2.0
  ),
  'composed median': Facts(composed(count(4, 4), sample(32)), 16, None, None),
  'composed trees': Facts(
    composed(layerwise(sketches.gaussian, 8), layerwise(sample, 32)), 8
  ),
  'stacked': Facts(stacked(mean(2, 4), 3), 24, 63 / 24, 2.0),
  'stacked median': Facts(stacked(count(4, 4), 3), 48, None, None),
  'stacked trees': Facts(
    stacked(layerwise(sample, 8), 3), 24, alpha_of(sample, (2, 1, 5)) / 3
  ),
} | {
  name: Facts(op, sum(sizes), alpha_of(factory, sizes))
  for name, (op, factory, sizes) in test_layerwise.OPERATORS.items()
}
LINEAR = [name for name, facts in FACTS.items() if facts.scale is not None]
every = pytest.mark.parametrize('name', FACTS)
# One of each way to combine; others differ by what is combined.
structures = pytest.mark.representatives('composed', 'stacked', 'proportional')
two = pytest.mark.representatives('proportional')


@every
def test_promises(name):
  op, floats, alpha, scale = FACTS[name]
  promises, table = promises_of(op), op.like(TREE)
  assert sum(x.size for x in jax.tree.leaves(table)) == floats
  assert promises.floats(TREE) == floats
  assert promises.linear == (scale is not None)
  unproven = alpha is None or name == 'composed'
  assert (promises.alpha is None) == unproven
  assert (promises.coordinate_wise is None) == unproven
  assert (promises.variance is None) == unproven
  if scale is not None:
    assert promises.adjoint_scale == pytest.approx(scale)
  operators.bad_trees(op)
  wrong = jax.tree.map(lambda x: x[..., :-1], table)
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, wrong, TREE)


@pytest.mark.representatives('composed')
@pytest.mark.parametrize('name', LINEAR)
def test_desketch_is_the_adjoint(name):
  operators.adjoint(FACTS[name].op, atol=2e-5 * min(FACTS[name].scale, 5))


@structures
@every
def test_one_hash_for_the_whole_cohort(name):
  operators.one_hash(FACTS[name].op)


@two
@pytest.mark.parametrize('name', [n for n in FACTS if n != 'explicit'])
def test_structure_and_dtype(name):
  """Not where sizes are those of TREE's leaves."""
  operators.structure(FACTS[name].op)


@two
@pytest.mark.covers('S4-Layer')
@every
def test_moments(name):
  """Lack of bias, the second moment, and a bound of the variances of pairs."""
  # Of an operator, 64 means within 6 standard errors, one, and 4 from above
  # and from below: 1.5e-7 to miss one.
  op, _, alpha, _ = FACTS[name]
  keys = jax.random.split(jax.random.key(1), 4000)
  fn = operators.jit(jax.vmap(operators.both(op), (0, None)))
  flat = [np.reshape(x, (4000, -1)) for x in jax.tree.leaves(fn(keys, TREE))]
  draws = np.concatenate(flat, axis=1).astype(np.float64)
  means, errors = operators.mean_and_error(draws)
  slack = 1e-6 if name in test_layerwise.OPERATORS else 1e-5
  assert (np.abs(means - X) < 6 * errors + slack).all()
  promises = promises_of(op)
  if alpha is not None:
    ratio, error = operators.mean_and_error(np.square(draws).sum(1) / (X @ X))
    assert error < 0.02 * (1 + alpha)
    assert abs(ratio - 1 - alpha) < 6 * error + slack
  if promises.alpha is not None:  # of the worst leaf
    one_leaf = len(jax.tree.leaves(op.like(TREE))) == 1
    bound = promises.alpha(TREE)
    assert bound == pytest.approx(alpha) if one_leaf else bound >= alpha
  if promises.coordinate_wise is not None:
    bound = promises.coordinate_wise(TREE) / promises.floats(TREE)
    for h in (X, *np.random.default_rng(0).standard_normal((3, 64))):
      square, error = operators.mean_and_error(np.square((draws - X[None]) @ h))
      assert square < bound * (X @ X) * (h @ h) + 6 * error
      tree = ravel_pytree(TREE)[1](jnp.float32(h))
      assert abs(square - promises.variance(TREE, tree)) < 6 * error + 1e-4


def test_stacked_trees_divide_the_alpha_of_the_worst_leaf():
  ops = layerwise(sample, 8), FACTS['stacked trees'].op
  one, stack = (promises_of(op).alpha(TREE) for op in ops)
  assert stack == pytest.approx(one / 3)


def matrix(op, d=64):
  """R f64[b, d] of one draw, for tables that are one array."""
  rows = operators.jit(jax.vmap(op.sketch, (None, 0)))(KEY, jnp.eye(d))
  return np.asarray(rows, np.float64).reshape(d, -1).T


def test_a_factor_makes_the_spectral_norm_1():
  for op in (cyclic(16), sample(16)):
    r = matrix(scaled(op, (16 / 64) ** 0.5))
    np.testing.assert_allclose(r @ r.T, np.eye(16), atol=1e-5)
  assert not promises_of(scaled(cyclic(16), 0.5)).orthogonal_rows
  assert promises_of(scaled(cyclic(16), 1)).orthogonal_rows


def test_composed_is_one_after_the_other():
  inner, outer = cyclic(32), sample(8)
  op = composed(outer, inner)
  one, two = (jax.random.fold_in(KEY, 16 + i) for i in range(2))

  @operators.jit
  def both():
    table, middle = op.sketch(KEY, TREE), inner.sketch(one, TREE)
    back = outer.desketch(two, table, middle)
    want = outer.sketch(two, middle), inner.desketch(one, back, TREE)
    return (table, op.desketch(KEY, table, TREE)), want

  chex.assert_trees_all_close(*both(), atol=1e-5)
  r = matrix(op)
  np.testing.assert_allclose(r @ r.T, 64 / 8 * np.eye(8), atol=1e-4)
  promises = promises_of(op)
  assert promises.alpha is promises.coordinate_wise is None
  assert promises.orthogonal_rows
  assert promises.exact_at_full_size
  assert promises.floats(64) == 8


def test_composed_is_exact_at_full_size():
  op = composed(sample(64), cyclic(64))
  out = operators.jit(operators.both(op, TREE))(KEY, TREE)
  chex.assert_trees_all_close(out, TREE, atol=1e-5)


def test_an_inner_table_may_be_a_tree():
  """Layer-wise operators one on the tables of the other: leaf by leaf."""
  tables = jax.eval_shape(FACTS['composed trees'].op.sketch, KEY, TREE)
  assert [table.shape for table in tables] == [(2,), (1,), (5,)]


@pytest.mark.nightly
@pytest.mark.parametrize('copies', [1, 3])
def test_stacked_is_the_mean_of_its_copies(copies):
  op = count(4, 4)  # not linear
  stack = stacked(op, copies)

  @operators.jit
  def both():
    keys = [jax.random.fold_in(KEY, 16 + i) for i in range(copies)]
    each = [operators.both(op, TREE)(key, TREE) for key in keys]
    tables = stack.sketch(KEY, TREE)
    want = jnp.stack([op.sketch(key, TREE) for key in keys]) / copies**0.5
    mean = jax.tree.map(lambda *xs: sum(xs) / copies, *each)
    return (tables, stack.desketch(KEY, tables, TREE)), (want, mean)

  chex.assert_trees_all_close(*both(), atol=1e-5)
  promises = promises_of(stacked(sample(8), copies))
  assert promises.orthogonal_rows == (copies == 1)
  assert promises.exact_at_full_size == (copies == 1)


def test_stacked_has_the_moments_of_a_sparser_block_cyclic():
  one, two = stacked(cyclic(8), 4), cyclic(32, sparsity=4)
  alphas = [promises_of(op).alpha(64) for op in (one, two)]
  assert alphas[0] == pytest.approx(alphas[1])


def test_stacked_never_holds_all_estimates():
  """No array of the program is as large as copies x d."""
  op = stacked(cyclic(8), 7)
  x = jnp.zeros(1000)
  text = str(jax.make_jaxpr(operators.both(op, x))(KEY, x))
  assert '[1000]' in text
  assert '[7,8]' in text
  assert '7000]' not in text
  assert '[7,1000]' not in text


def test_copies_are_added_in_float32():
  """Of bfloat16 numbers the mean is rounded once, not after every copy."""
  x = jnp.linspace(1, 2, 64)
  op = stacked(mean(1, 2), 32)

  @operators.jit
  def both():
    table = op.sketch(KEY, x)
    likes = x, x.astype(jnp.bfloat16)
    return [op.desketch(KEY, table, like) for like in likes]

  wide, narrow = both()
  np.testing.assert_array_equal(narrow, wide.astype(jnp.bfloat16))


@pytest.mark.nightly
@pytest.mark.parametrize('name', ['composed', 'stacked trees', 'proportional'])
def test_inside_shard_map_scan_and_vmap(name):
  atol = 1e-5 if name in test_layerwise.OPERATORS else 1e-4
  operators.same_in_shards(FACTS[name].op, atol=atol)


median = count(3, 4)
test_bad_arguments = refused_calls(
  (lambda: scaled(cyclic(4), 0), r'factor=0\.0 to be finite and > 0'),
  (lambda: scaled(cyclic(4), -1.0), r'factor=-1\.0'),
  (lambda: scaled(cyclic(4), math.inf), 'factor=inf'),
  (lambda: scaled(cyclic(4), math.nan), 'factor=nan'),
  (lambda: composed(cyclic(4), median), "inner='count_sketch' to be linear"),
  (lambda: composed(cyclic(4), scaled(median, 2.0)), "inner='scaled'"),
  (lambda: stacked(cyclic(4), 0), r'copies=0 to be an integer >= 1'),
  (lambda: stacked(median._replace(properties=None), 2), 'states none'),
)


@pytest.mark.parametrize(
  ('op', 'message'),
  [
    (stacked(cyclic(8), 9), r'Expected copies=9 \* 8 <= d=64\.'),
    (scaled(cyclic(65), 2.0), r'size=65 <= d=64\.'),
    (composed(cyclic(33), cyclic(32)), r'size=33 <= d=32\.'),
    (composed(cyclic(8), cyclic(65)), r'size=65 <= d=64\.'),
  ],
)
def test_a_table_larger_than_the_tree_is_refused(op, message):
  operators.refuses(op, TREE, jnp.ones(65), message)


def test_complex_tables():
  """A factor and copies are fine with them; a second sketch is not."""
  srft = sketches.srft(8)
  for op in (scaled(srft, 0.5), stacked(srft, 2)):
    assert jax.eval_shape(op.sketch, KEY, TREE).dtype == jnp.complex64
    out = jax.eval_shape(operators.both(op, TREE), KEY, TREE)
    chex.assert_trees_all_equal_shapes_and_dtypes(out, TREE)
  with pytest.raises(TypeError, match="dtype='complex64'"):
    jax.eval_shape(composed(cyclic(4), srft).sketch, KEY, TREE)
