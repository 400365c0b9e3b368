"""What every operator does with trees, tiles, keys and devices."""

import dataclasses
import functools

import chex
from fl_sketch import sketches
from fl_sketch.sketches import base, blocks, columns, dense, hadamard, signs
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, OPERATORS, TREE, both, dot, normal_like, vector
import pytest


@operators.law(OPERATORS, fast=['median', 'srft'])
def test_structure_and_dtype(name):
  table = operators.structure(OPERATORS[name].op)
  assert table.dtype == (jnp.complex64 if name == 'srft' else jnp.float32)


@operators.law(operators.LINEAR, fast=['gaussian', 'mean'])
def test_float64_stays_float64(name):
  op = OPERATORS[name].op
  scale = op.properties.adjoint_scale
  with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(0), (64,), jnp.float64)
    y = normal_like(1, op.zero_table(x))
    parts = lambda key, x, y: (op.sketch(key, x), op.desketch(key, y, x))
    table, out = operators.jit(parts)(KEY, x, y)
    assert out.dtype == jnp.float64
    assert y.dtype == (jnp.complex128 if name == 'srft' else jnp.float64)
    np.testing.assert_allclose(scale * dot(x, out), dot(table, y), 1e-12)


@operators.law(OPERATORS, fast=['block_cyclic'])
def test_leaves_and_tiles_are_invisible(name, set_constant):
  """A vector that is cut into leaves, runs and tiles of odd sizes."""
  x = vector(TREE)
  cut = [x[:7], x[7:8], x[8:41].reshape(3, 11), x[41:41], x[41:]]
  cut[2] = cut[2].astype(jnp.bfloat16)
  rounded = np.concatenate([x[:8], cut[2].ravel().astype('float32'), x[41:]])
  (table, want), (out, _) = operators.lanes(name, KEY, [x, rounded])
  for module, tile, size in (
    (base, 'SMALL_LEAF', 8), (blocks, 'TILE', 5), (columns, 'TILE', 20),
    (dense, 'TILE', 16 * 5), (signs, '_TILE', 5), (hadamard, 'CACHED', 8),
  ):  # fmt: skip
    set_constant(module, tile, size)
  op = OPERATORS[name].make(16)
  parts = lambda x, y: (op.sketch(KEY, x), op.desketch(KEY, y, x))
  tiled, leaves = operators.jit(parts)(cut, table)
  np.testing.assert_allclose(tiled, want, atol=1e-5)
  exact = [leaf for i, leaf in enumerate(leaves) if i != 2]
  kept = np.concatenate([out[:8], out[41:]])
  np.testing.assert_allclose(vector(exact), kept, atol=1e-5)
  near = np.ravel(leaves[2]).astype(np.float32)
  np.testing.assert_allclose(near, out[8:41], rtol=0.01, atol=1e-5)


@operators.each_keyed_structure
def test_equal_keys_equal_operators(name):
  """Keys by their words, of which those of another generator are more."""
  seeds = jnp.stack([jax.random.key(seed) for seed in (7, 7, 8)])
  table, same, other = operators.lanes(name, seeds, [vector(TREE)] * 3)[0]
  np.testing.assert_array_equal(table, same)
  sketch = operators.jit(OPERATORS[name].op.sketch)
  for different in (other, sketch(jax.random.key(7, impl='rbg'), TREE)):
    assert np.abs(table - different).max() > 0.1


@operators.each_structure
def test_one_hash_for_the_whole_cohort(name):
  """Under `vmap` the hashes are computed once, and never by `jax.random`."""
  trees = jax.tree.map(lambda x: jnp.stack([x] * 23), TREE)
  lanes = jax.vmap(OPERATORS[name].op.sketch, (None, 0))
  text = str(jax.make_jaxpr(lanes)(KEY, trees))
  assert 'random_bits' not in text
  assert 'u32[23,' not in text


def cohort():
  """Four clients, and the vectors that they hold."""
  trees = jax.tree.map(lambda x: jnp.stack([x, -x, 2 * x, x + 1]), TREE)
  rows = [vector(jax.tree.map(lambda x, i=i: x[i], trees)) for i in range(4)]
  return trees, np.stack(rows)


def rows_of(trees):
  """f32[clients, d] of the trees of all clients."""
  flat = [np.reshape(x, (len(x), -1)) for x in jax.tree.leaves(trees)]
  return np.concatenate(flat, 1)


@operators.law(OPERATORS, fast=['median'])
def test_inside_shard_map_vmap_and_scan(name):
  """Varying inputs and a key that is not, under `check_vma=True`."""
  op, (trees, rows) = OPERATORS[name].op, cohort()
  there_and_back = lambda key, x: operators.table_and_back(op, key, x)
  lanes = jax.vmap(there_and_back, (None, 0))

  def shard(key, xs):
    start = xs['b'][1][0] * op.zero_table(TREE)  # varying, as the carry

    def step(total, x):
      table, out = there_and_back(key, x)
      return total + table, (table, out)

    total, each = jax.lax.scan(step, start, xs)
    return lanes(key, xs), each, total[None]

  shards = operators.jit(operators.two_shards(shard))
  *both, totals = jax.device_get(shards(KEY, trees))
  tables, estimates = operators.lanes(name, KEY, rows)
  for table, out in both:
    np.testing.assert_allclose(table, tables, atol=1e-4)
    np.testing.assert_allclose(rows_of(out), estimates, atol=1e-4)
  pairs = np.reshape(tables, (2, 2, *tables.shape[1:])).sum(1)
  np.testing.assert_allclose(totals, pairs, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize('name', ['block_cyclic', 'srht', 'block_srht', 'dct'])
def test_a_large_tree_is_sketched_lane_by_lane(name, set_constant):
  """Catches a lane that gets another's key, and a derivative that is lost."""
  trees, _ = cohort()
  tree, keys = jax.tree.map(lambda x: x[0], trees), jax.random.split(KEY, 4)

  def everything():
    op = OPERATORS[name].make(16)
    one = lambda key, x: operators.table_and_back(op, key, x)
    energy = lambda key, x: jnp.square(one(key, x)[1]['w']).sum()
    sharded = operators.two_shards(jax.vmap(one), split=(True, True))
    slopes = jax.vmap(jax.grad(energy, 1), (None, 0))
    parts = lambda keys, trees: (sharded(keys, trees), slopes(KEY, trees))
    loops = 'custom_vmap' in str(jax.make_jaxpr(op.sketch)(KEY, tree))
    return jax.device_get(operators.jit(parts)(keys, trees)), loops

  wanted, loops = everything()
  assert not loops
  set_constant(base, 'LARGE_TREE', 1)
  found, loops = everything()
  assert loops
  chex.assert_trees_all_close(found, wanted, atol=1e-4)


@operators.law(operators.KEYED, fast=['gaussian'])
def test_a_key_of_its_own_for_each_client(name):
  """Keys that vary where the data does not, as noise of a client may."""
  op, keys = OPERATORS[name].op, jax.random.split(KEY, 4)
  one = lambda key: operators.table_and_back(op, key, TREE)
  shards = operators.jit(operators.two_shards(jax.vmap(one), split=(True,)))
  table, out = jax.device_get(shards(keys))
  tables, estimates = operators.lanes(name, keys, [vector(TREE)] * 4)
  np.testing.assert_allclose(table, tables, atol=1e-5)
  np.testing.assert_allclose(rows_of(out), estimates, atol=1e-5)


@operators.law(OPERATORS, fast=['block_cyclic_4', 'srht', 'block_srht'])
def test_lowers_for_accelerators(name):
  fn = jax.jit(both(OPERATORS[name].op))
  exported = jax.export.export(fn, platforms=['tpu', 'cuda'])(KEY, TREE)
  assert exported.platforms == ('tpu', 'cuda')


@pytest.mark.nightly
@pytest.mark.parametrize(('size', 'd', 'sparsity'), [(13, 77, 1), (12, 77, 3)])
def test_block_cyclic_has_one_law_on_all_backends(size, d, sparsity):
  x = jax.random.normal(KEY, (d,))
  starts = [0, d // 3, d - 1]
  vector = jax.ShapeDtypeStruct((d,), x.dtype)
  cols = size // sparsity

  @operators.jit
  def forms(key, x):
    hashes = blocks.copies_of(key, cols, sparsity, d)
    ends = [*starts[1:], d]
    runs = [base.Segment(a, x[a:b]) for a, b in zip(starts, ends, strict=True)]
    spans = [base.Span(r.start, r.x.size, x.dtype) for r in runs]
    sketch = blocks.sketch_loop, blocks.sketch_gather
    tables = [form(cols, hashes, runs, vector) for form in sketch]
    desketch = blocks.desketch_loop, blocks.desketch_gather
    return tables, [f(cols, hashes, tables[0], spans) for f in desketch]

  tables, estimates = forms(KEY, x)
  chex.assert_trees_all_close(*tables, atol=1e-5)
  chex.assert_trees_all_close(*estimates, atol=1e-6)


# Of those that allow a table of one number.
@operators.law(
  ['ams', 'dct', 'gaussian', 'sampling', 'srft', 'srht', 'block_cyclic',
   'block_srht'], fast=['sampling', 'block_cyclic', 'block_srht'],
)  # fmt: skip
@pytest.mark.parametrize('d', [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_tiny_trees(name, d):
  """One number in a table, and an empty leaf."""
  x = {'w': jnp.arange(1.0, d + 1), 'e': jnp.zeros((0, 2))}
  out = operators.jit(both(OPERATORS[name].make(1), x))(KEY, x)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, x)
  assert np.isfinite(vector(out)).all()


MAKERS = {n: f.make for n, f in OPERATORS.items() if n != 'identity'} | {
  'layerwise': lambda b: sketches.layerwise(sketches.block_cyclic, b),
  'layer_cyclic': lambda b: sketches.layer_cyclic(b, np.array([b - 3, 1, 2])),
}


def test_operators_are_values():
  """Catches an option that is not compared, printed or pickled."""
  sizes = [functools.partial(f, b) for f in MAKERS.values() for b in (16, 32)]
  operators.are_values([sketches.identity, *sizes], vars(sketches))


@operators.law(MAKERS, fast=['block_cyclic'])
def test_an_operator_is_compiled_once_for_the_same_shapes(name):
  """Catches equal operators whose programs are compiled again."""
  tree = {'w': jnp.ones((30, 2)), 'b': (jnp.ones(14), jnp.ones(33))}

  @jax.jit(static_argnums=0)
  def energy(op, key):
    return jnp.square(op.desketch(key, op.sketch(key, tree), tree)['w']).sum()

  def use(op):
    operators.table_and_back(op, KEY, tree)
    energy(op, KEY)

  with operators.compilations() as first:
    use(MAKERS[name](20))
  with operators.compilations() as again:
    use(MAKERS[name](20))
  assert first
  assert not again


@dataclasses.dataclass(frozen=True)
class Scaled(sketches.block_cyclic):
  """An operator with an option that a sweep may trace."""

  factor: float = 1.0

  def desketch_spans(self, key, table, spans, vector):
    estimates = super().desketch_spans(key, table, spans, vector)
    return [self.factor * x for x in estimates]


def test_an_option_may_be_traced():
  """Catches a tracer that a compiled operator would have to hash."""
  there_and_back = lambda factor: both(Scaled(16, factor))(KEY, TREE)
  traced = operators.jit(there_and_back)(jnp.float32(0.5))
  chex.assert_trees_all_equal(
    traced, operators.jit(both(Scaled(16, 0.5)))(KEY, TREE)
  )
