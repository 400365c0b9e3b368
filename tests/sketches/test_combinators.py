"""What operators made of other operators keep, and what they change."""

import functools
import math
from typing import Any, NamedTuple

import chex
from fl_sketch import sketches
from fl_sketch.sketches.combinators import composed, scaled, stacked
from fl_sketch.sketches.layerwise import layerwise
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, vector
import pytest
from refusals import refused_calls

from tests.sketches.test_layerwise import OPERATORS as LAYERS

TREE = {
  'w': jax.random.normal(jax.random.key(0), (6, 8)),
  'b': jax.random.normal(jax.random.key(1), (16,)),
}  # 64 numbers
cyclic = sketches.block_cyclic
sample = sketches.uniform_sampling
count = sketches.count_sketch
mean = lambda rows, cols: count(rows, cols, combine='mean')


class Facts(NamedTuple):
  """What is claimed of one operator at TREE."""

  op: sketches.Sketch
  floats: int
  alpha: Any = None  # the exact constant, where it is known
  scale: Any = 1.0  # of the adjoint; None: desketch is not linear


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
  'stacked trees': Facts(stacked(layerwise(sample, 8), 3), 24, 7 / 3),
}
# Layer-wise operators as well: each, the tree that it takes, and the scale.
LAWFUL = {name: (f.op, TREE, f.scale) for name, f in FACTS.items()} | {
  name: (op, operators.TREE, 1.0) for name, (op, *_) in LAYERS.items()
}
every = pytest.mark.parametrize('name', FACTS)
lawful = pytest.mark.parametrize('name', LAWFUL)


def promises_of(op) -> Any:
  return sketches.properties(op)


def numbers(tree):
  return sum(x.size for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
  'name', [n for n, (*_, scale) in LAWFUL.items() if scale is not None]
)
def test_desketch_is_the_adjoint(name):
  """Of a linear map, since sketch x is its own derivative applied to x."""
  op, tree, scale = LAWFUL[name]
  assert promises_of(op).adjoint_scale == pytest.approx(scale)
  y = jax.tree.map(
    lambda x: x + jnp.linspace(-1, 1, x.size).reshape(x.shape), op.like(tree)
  )

  @jax.jit
  def both(y):
    table, pull = jax.vjp(lambda x: op.sketch(KEY, x), tree)
    return table, pull(y)[0], op.desketch(KEY, y, tree)

  table, pulled, back = both(y)
  back = jax.tree.map(lambda x: scale * x, back)
  chex.assert_trees_all_close(pulled, back, atol=1e-5 * min(scale, 10))
  want = vector(tree) @ vector(pulled)
  np.testing.assert_allclose(vector(table) @ vector(y), want, rtol=1e-4)


@functools.cache
def draws(name):
  """Estimates f64[4000, 64] of the tree, a key each."""
  op, tree, _ = LAWFUL[name]
  keys = jax.random.split(jax.random.key(1), 4000)
  fn = jax.jit(jax.vmap(operators.both(op, tree), (0, None)))
  flat = [np.reshape(x, (4000, -1)) for x in jax.tree.leaves(fn(keys, tree))]
  return np.concatenate(flat, axis=1).astype(np.float64)


@pytest.mark.covers('S4-Layer[proportional, sqrt, explicit]')
@lawful
def test_unbiased(name):
  # 64 coordinates within 6 standard errors: 1.3e-7 to miss one, an operator.
  mean, error = operators.mean_and_error(draws(name))
  slack = 1e-6 if name in LAYERS else 1e-5
  assert (np.abs(mean - vector(LAWFUL[name][1])) < 6 * error + slack).all()


@pytest.mark.parametrize(
  'name', [n for n, f in FACTS.items() if f.alpha is not None]
)
def test_second_moment(name):
  # 4 means within 6 standard errors: 8e-9 to miss one.
  x = vector(TREE).astype(np.float64)
  ratio = np.square(draws(name)).sum(1) / (x @ x)
  error, want = ratio.std() / np.sqrt(len(ratio)), 1 + FACTS[name].alpha
  assert error < 0.02 * want
  assert abs(ratio.mean() - want) < 6 * error + 1e-5


@pytest.mark.covers('S4-Layer')
@pytest.mark.parametrize('name', LAYERS)
def test_second_moments_add_up_over_the_leaves(name):
  # 3 means within 6 standard errors: 6e-9 to miss one.
  _, factory, sizes = LAYERS[name]
  want = 0.0
  for x, b in zip(jax.tree.leaves(operators.TREE), sizes, strict=True):
    alpha = promises_of(factory(b)).alpha(x.size)
    want += np.sum(np.square(x)) * (1 if b == x.size else 1 + alpha)
  moments = np.square(draws(name)).sum(1)
  error = moments.std() / np.sqrt(len(moments))
  assert error < 0.02 * want
  assert abs(moments.mean() - want) < 6 * error


@every
def test_properties_are_what_is_claimed(name):
  op, floats, alpha, scale = FACTS[name]
  promises = promises_of(op)
  assert numbers(op.like(TREE)) == promises.floats(TREE) == floats
  assert promises.linear == (scale is not None)
  unproven = alpha is None or name == 'composed'
  assert (promises.alpha is None) == unproven
  if not unproven:
    assert promises.alpha(TREE) == pytest.approx(alpha)


@pytest.mark.parametrize('name', ['scaled', 'stacked', *LAYERS])
def test_the_coordinate_wise_constant_bounds_the_variance(name):
  # 20 variances above their bounds by 6 standard errors: 2e-8.
  op, tree, _ = LAWFUL[name]
  x, promises = vector(tree).astype(np.float64), promises_of(op)
  bound = promises.coordinate_wise(tree) / promises.floats(tree)
  for h in (x, *np.random.default_rng(0).standard_normal((3, 64))):
    square = np.square((draws(name) - x[None]) @ h)
    error = square.std() / np.sqrt(len(square))
    assert square.mean() < bound * (x @ x) * (h @ h) + 6 * error


def matrix(op, d=64):
  """R f64[b, d] of one draw, for tables that are one array."""
  rows = jax.jit(jax.vmap(op.sketch, (None, 0)))(KEY, jnp.eye(d))
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

  @jax.jit
  def both():
    table, middle = op.sketch(KEY, TREE), inner.sketch(one, TREE)
    back = outer.desketch(two, table, middle)
    want = outer.sketch(two, middle), inner.desketch(one, back, TREE)
    return (table, op.desketch(KEY, table, TREE)), want

  chex.assert_trees_all_close(*both(), atol=1e-5)
  r = matrix(op)
  np.testing.assert_allclose(r @ r.T, 64 / 8 * np.eye(8), atol=1e-4)
  promises = promises_of(op)
  assert promises.orthogonal_rows
  assert promises.exact_at_full_size
  assert promises.floats(64) == 8


def test_composed_is_exact_at_full_size():
  op = composed(sample(64), cyclic(64))
  out = jax.jit(operators.both(op, TREE))(KEY, TREE)
  chex.assert_trees_all_close(out, TREE, atol=1e-5)


def test_an_inner_table_may_be_a_tree():
  """Layer-wise operators one on the tables of the other: leaf by leaf."""
  tables = jax.eval_shape(FACTS['composed trees'].op.sketch, KEY, TREE)
  assert [table.shape for table in tables] == [(2,), (6,)]


@pytest.mark.parametrize('copies', [1, 3])
def test_stacked_is_the_mean_of_its_copies(copies):
  op = count(4, 4)  # not linear
  stack = stacked(op, copies)

  @jax.jit
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
  like = jnp.zeros(64)
  one, two = stacked(cyclic(8), 4), cyclic(32, sparsity=4)
  alphas = [promises_of(op).alpha(like) for op in (one, two)]
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


@every
def test_structure_and_dtype(name):
  op = FACTS[name].op
  tree = {
    'w': jnp.ones((8, 9), jnp.bfloat16),
    'b': [jnp.float32(2.0), jnp.zeros((0, 3)), np.ones(5, np.float32)],
  }
  table = jax.eval_shape(op.sketch, KEY, tree)
  zeros = op.like(jax.eval_shape(lambda: tree))
  chex.assert_trees_all_equal_shapes_and_dtypes(table, zeros)
  chex.assert_trees_all_equal(zeros, jax.tree.map(jnp.zeros_like, zeros))
  out = jax.eval_shape(op.desketch, KEY, table, tree)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, tree)


def test_copies_are_added_in_float32():
  """Of bfloat16 numbers the mean is rounded once, not after every copy."""
  x = jnp.linspace(1, 2, 64)
  op = stacked(mean(1, 2), 32)

  @jax.jit
  def both():
    table = op.sketch(KEY, x)
    likes = x, x.astype(jnp.bfloat16)
    return [op.desketch(KEY, table, like) for like in likes]

  wide, narrow = both()
  np.testing.assert_array_equal(narrow, wide.astype(jnp.bfloat16))


@pytest.mark.parametrize('name', ['composed', 'stacked trees', 'proportional'])
def test_inside_shard_map_scan_and_vmap(name):
  atol = 1e-5 if name in LAYERS else 1e-4
  operators.same_in_shards(LAWFUL[name][0], atol=atol)


@lawful
def test_one_hash_for_the_whole_cohort(name):
  operators.one_hash(LAWFUL[name][0])


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
  for fn in (
    lambda: op.like(TREE),
    lambda: op.sketch(KEY, TREE),
    lambda: op.desketch(KEY, jnp.ones(65), TREE),
  ):
    with pytest.raises(ValueError, match=message):
      fn()


@every
def test_bad_trees_and_tables(name):
  op = FACTS[name].op
  with pytest.raises(TypeError, match="dtype='int32'"):
    op.sketch(KEY, {'w': jnp.ones(64, jnp.int32)})
  wrong = jax.tree.map(lambda x: x[..., :-1], op.like(TREE))
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, wrong, TREE)


def test_complex_tables():
  """A factor and copies are fine with them; a second sketch is not."""
  srft = sketches.srft(8)
  for op in (scaled(srft, 0.5), stacked(srft, 2)):
    assert jax.eval_shape(op.sketch, KEY, TREE).dtype == jnp.complex64
    out = jax.eval_shape(operators.both(op, TREE), KEY, TREE)
    chex.assert_trees_all_equal_shapes_and_dtypes(out, TREE)
  with pytest.raises(TypeError, match="dtype='complex64'"):
    jax.eval_shape(composed(cyclic(4), srft).sketch, KEY, TREE)
