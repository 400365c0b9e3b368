"""What every operator does with trees, tiles, keys and devices."""

import hashlib

import chex
from fl_sketch import sketches
from fl_sketch.sketches import base, blocks, columns, dense, hadamard, signs
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, OPERATORS, TREE, both, dot, normal_like, vector
import pytest
import runs

every = pytest.mark.parametrize('name', OPERATORS)
keyed = pytest.mark.parametrize('name', operators.KEYED)
linear = pytest.mark.parametrize('name', operators.LINEAR)


@every
def test_structure_and_dtype(name):
  table = operators.structure(OPERATORS[name].op)
  assert table.dtype == (jnp.complex64 if name == 'srft' else jnp.float32)


@linear
def test_float64_stays_float64(name):
  op = OPERATORS[name].op
  scale = sketches.properties(op).adjoint_scale
  with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(0), (64,), jnp.float64)
    y = normal_like(1, op.like(x))
    want = dot(op.sketch(KEY, x), y)
    out = op.desketch(KEY, y, x)
    assert out.dtype == jnp.float64
    assert y.dtype == (jnp.complex128 if name == 'srft' else jnp.float64)
    np.testing.assert_allclose(scale * dot(x, out), want, 1e-12)


@every
def test_leaves_and_tiles_are_invisible(name, monkeypatch):
  """A vector whole, and cut into leaves, runs and tiles of odd sizes."""
  op, x = OPERATORS[name].op, vector(TREE)
  table = op.sketch(KEY, x)
  out = op.desketch(KEY, table, x)
  cut = [x[:7], x[7:8], x[8:41].reshape(3, 11), x[41:41], x[41:]]
  cut[2] = cut[2].astype(jnp.bfloat16)
  rounded = jnp.concatenate([x[:8], cut[2].ravel().astype('float32'), x[41:]])
  monkeypatch.setattr(base, 'SMALL_LEAF', 8)
  monkeypatch.setattr(blocks, 'TILE', 5)
  monkeypatch.setattr(columns, 'TILE', 20)
  monkeypatch.setattr(dense, 'TILE', 16 * 5)
  monkeypatch.setattr(signs, '_TILE', 5)
  monkeypatch.setattr(hadamard, 'CACHED', 8)
  op = OPERATORS[name].make(16)  # not yet compiled with the usual sizes
  whole = op.sketch(KEY, x)
  again = op.desketch(KEY, table, x)
  tiled = op.sketch(KEY, cut)
  leaves = op.desketch(KEY, table, cut)
  want = op.sketch(KEY, rounded)
  chex.assert_trees_all_close(whole, table, atol=1e-5)
  chex.assert_trees_all_close(again, out, atol=1e-5)
  chex.assert_trees_all_close(tiled, want, atol=1e-5)
  exact = [leaf for i, leaf in enumerate(leaves) if i != 2]
  kept = np.concatenate([out[:8], out[41:]])
  np.testing.assert_allclose(vector(exact), kept, atol=1e-5)
  near = np.ravel(leaves[2]).astype(np.float32)
  np.testing.assert_allclose(near, out[8:41], rtol=0.01, atol=1e-5)


@keyed
def test_equal_keys_equal_operators(name):
  op = OPERATORS[name].op
  table = op.sketch(KEY, TREE)
  chex.assert_trees_all_equal(table, op.sketch(jax.random.key(7), TREE))
  for other in (jax.random.key(8), jax.random.key(7, impl='rbg')):
    assert np.abs(table - op.sketch(other, TREE)).max() > 0.1


def fingerprints():
  """Of the bits of tables and estimates, for every kind of hash there is."""
  digests, x = {}, np.sin(np.arange(300, dtype=np.float32))
  for name in 'gaussian', 'ams', 'mean', 'embedding_1', 'block_cyclic', 'dct':
    op = OPERATORS[name].op
    table = op.sketch(KEY, x)
    out = op.desketch(KEY, table, x)
    bits = np.asarray(table).tobytes() + np.asarray(out).tobytes()
    digests[name] = hashlib.sha256(bits).hexdigest()
  return digests


def test_same_bits_in_another_process():
  """One device there and two here, and another threefry."""
  code = (
    'from tests.sketches import test_sketches as t; print(t.fingerprints())'
  )
  printed = runs.python('-c', code, JAX_THREEFRY_PARTITIONABLE='false')
  assert printed == str(fingerprints())


@pytest.mark.covers('S4-Rem3.1')
@every
def test_one_hash_for_the_whole_cohort(name):
  operators.one_hash(OPERATORS[name].op)


@every
def test_inside_shard_map_vmap_and_scan(name):
  """Varying inputs and a key that is not, under `check_vma=True`."""
  op = OPERATORS[name].op
  cohort = jax.tree.map(lambda x: jnp.stack([x, -x, 2 * x, x + 1]), TREE)
  there_and_back = lambda key, x: (op.sketch(key, x), both(op)(key, x))
  lanes = jax.vmap(there_and_back, (None, 0))

  def shard(key, xs):
    start = xs['b'][1][0] * op.like(TREE)  # varying, as the scan's carry is
    step = lambda total, x: (total + op.sketch(key, x), both(op)(key, x))
    total, out = jax.lax.scan(step, start, xs)
    return lanes(key, xs), total[None], out

  shards = operators.two_shards(shard)
  want, want_out = jax.jit(lanes)(KEY, cohort)
  mapped, totals, out = jax.jit(shards)(KEY, cohort)
  chex.assert_trees_all_close(mapped, (want, want_out), atol=1e-4)
  chex.assert_trees_all_close(out, want_out, atol=1e-4)
  pairs = np.reshape(want, (2, 2, *want.shape[1:])).sum(1)
  np.testing.assert_allclose(totals, pairs, atol=1e-4)
  one = op.sketch(KEY, jax.tree.map(lambda x: x[2], cohort))
  chex.assert_trees_all_close(want[2], one, atol=1e-4)


@keyed
def test_a_key_of_its_own_for_each_client(name):
  """Keys that vary where the data does not, as noise of a client may."""
  op = OPERATORS[name].op
  keys = jax.random.split(KEY, 4)
  lanes = jax.vmap(lambda key: (op.sketch(key, TREE), both(op)(key, TREE)))
  shards = operators.two_shards(lanes, split=(True,))
  chex.assert_trees_all_close(
    jax.jit(shards)(keys), jax.jit(lanes)(keys), atol=1e-5
  )


@every
def test_lowers_for_accelerators(name):
  fn = jax.jit(both(OPERATORS[name].op))
  exported = jax.export.export(fn, platforms=['tpu', 'cuda'])(KEY, TREE)
  assert exported.platforms == ('tpu', 'cuda')


@pytest.mark.parametrize(
  ('size', 'd', 'sparsity'), [(13, 77, 1), (2, 77, 1), (1, 3, 1), (12, 77, 3)]
)
def test_block_cyclic_has_one_law_on_all_backends(size, d, sparsity):
  x = jax.random.normal(KEY, (d,))
  starts = [0, d // 3, d - 1]
  vector = jax.ShapeDtypeStruct((d,), x.dtype)
  cols = size // sparsity

  @jax.jit
  def forms(key, x):
    hashes = blocks.copies_of(key, cols, sparsity, d)
    ends = [*starts[1:], d]
    runs = [base.Run(a, x[a:b]) for a, b in zip(starts, ends, strict=True)]
    spans = [base.Span(r.start, r.x.size, x.dtype) for r in runs]
    sketch = blocks.sketch_loop, blocks.sketch_gather
    tables = [form(cols, hashes, runs, vector) for form in sketch]
    desketch = blocks.desketch_loop, blocks.desketch_gather
    return tables, [f(cols, hashes, tables[0], spans) for f in desketch]

  tables, estimates = forms(KEY, x)
  chex.assert_trees_all_close(*tables, atol=1e-5)
  chex.assert_trees_all_close(*estimates, atol=1e-6)


@pytest.mark.parametrize('d', [1, 3])
def test_tiny_trees(d):
  """One coordinate, and size 1, for all that allow it."""
  x = {'w': jnp.arange(1.0, d + 1), 'e': jnp.zeros((0, 2))}
  for make in (
    sketches.gaussian,
    sketches.ams,
    sketches.uniform_sampling,
    sketches.block_cyclic,
    sketches.srht,
    sketches.dct,
    sketches.srft,
    lambda b: sketches.sparse_embedding(b, b, kind='I'),
    lambda b: sketches.sparse_embedding(b, b, kind='II'),
    lambda b: sketches.count_sketch(1, b),
  ):
    for size in {1, d}:
      op = make(size)
      out = both(op, x)(KEY, x)
      chex.assert_trees_all_equal_shapes_and_dtypes(out, x)
      assert np.isfinite(vector(out)).all()
      padded = make is sketches.srht and d == 3
      if size == d and op.properties.exact_at_full_size and not padded:
        np.testing.assert_allclose(out['w'], x['w'], rtol=1e-5)
