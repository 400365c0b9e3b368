"""What every sketch must satisfy, whatever its hash functions."""

import functools
import importlib
from typing import Any
from typing import NamedTuple

import chex
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
import pytest

P = jax.sharding.PartitionSpec
KEY = jax.random.key(7)
TREE = {
  'w': jax.random.normal(jax.random.key(0), (6, 8)),
  'b': (jax.random.normal(jax.random.key(1), (15,)), jnp.float32(-2.0)),
}  # 64 numbers


class Facts(NamedTuple):
  """What is claimed of one operator; `scale` is that of the adjoint."""

  op: sketches.Sketch
  size: int
  alpha: Any = None  # d -> the exact constant, where it is known
  scale: Any = 1.0  # None: desketch is not linear
  at_full_size: sketches.Sketch | None = None  # size 64: exact on TREE
  orthogonal: bool = False


def srht_alpha(d, b=16):
  n = 1 << (d - 1).bit_length()
  return (d - 1) * (n - b) / (b * (n - 1))


FACTS = {
  'identity': Facts(
    sketches.identity(), 1, lambda d: 0.0, 1.0, sketches.identity(), True
  ),
  'median': Facts(sketches.count_sketch(4, 8), 32, scale=None),
  'mean': Facts(
    sketches.count_sketch(4, 8, combine='mean'),
    32,
    lambda d: (d - 1) / 32,
    scale=4.0,
  ),
  'block_cyclic': Facts(
    sketches.block_cyclic(16),
    16,
    lambda d: d / 16 - 1,
    1.0,
    sketches.block_cyclic(64),
    True,
  ),
  'srht': Facts(
    sketches.srht(16), 16, srht_alpha, 1.0, sketches.srht(64), True
  ),
}
every = pytest.mark.parametrize('name', FACTS)
linear = pytest.mark.parametrize(
  'name', [n for n, f in FACTS.items() if f.scale is not None]
)
keyed = pytest.mark.parametrize('name', [n for n in FACTS if n != 'identity'])


def normal_like(seed, tree):
  leaves, treedef = jax.tree.flatten(tree)
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  draw = lambda k, x: jax.random.normal(k, x.shape, x.dtype)
  return treedef.unflatten(map(draw, keys, leaves))


def vector(tree):
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def dot(x, y):
  return float(np.dot(vector(x), vector(y)))


def both(op, like=TREE):
  return lambda key, x: op.desketch(key, op.sketch(key, x), like)


@every
def test_linear(name):
  op = FACTS[name].op
  x, y = normal_like(2, TREE), normal_like(3, TREE)
  mixed = jax.tree.map(lambda a, b: 2 * a - 3 * b, x, y)
  apart = 2 * op.sketch(KEY, x) - 3 * op.sketch(KEY, y)
  chex.assert_trees_all_close(op.sketch(KEY, mixed), apart, atol=1e-4)


@linear
def test_desketch_is_the_adjoint(name):
  op, scale = FACTS[name].op, FACTS[name].scale
  sketch_at = lambda key: lambda x: op.sketch(key, x)
  transpose = jax.jit(lambda key, y: jax.vjp(sketch_at(key), TREE)[1](y))
  for seed in range(3):
    key = jax.random.key(seed)
    y = normal_like(seed, op.like(TREE))
    want = dot(op.sketch(key, TREE), y)
    back = op.desketch(key, y, TREE)
    np.testing.assert_allclose(scale * dot(TREE, back), want, rtol=1e-4)
    # Derivatives flow through sketches, as attacks on them need.
    (grad,) = transpose(key, y)
    chex.assert_trees_all_close(vector(grad), scale * vector(back), atol=1e-4)


@functools.cache
def draws(name, d):
  """Estimates f64[4000, d] of the first d numbers of TREE, a key each."""
  x, keys = vector(TREE)[:d], jax.random.split(jax.random.key(1), 4000)
  fn = jax.jit(jax.vmap(both(FACTS[name].op, x), (0, None)))
  return x, np.asarray(fn(keys, x), np.float64)


@every
def test_unbiased(name):
  # 5 operators x 64 coordinates within 6 standard errors: 7e-7 to miss one.
  x, estimates = draws(name, 64)
  error = np.abs(estimates.mean(0) - x)
  assert (error < 6 * estimates.std(0) / np.sqrt(len(estimates)) + 1e-6).all()


@linear
@pytest.mark.parametrize('d', [64, 48])  # 48: padded by srht
def test_second_moment(name, d):
  # 8 means within 6 standard errors: 2e-8 to miss one.
  x, estimates = draws(name, d)
  ratio = np.square(estimates).sum(1) / np.square(x, dtype=np.float64).sum()
  error = ratio.std() / np.sqrt(len(ratio))
  want = 1 + FACTS[name].alpha(d)
  assert error < 0.01 * want
  assert abs(ratio.mean() - want) < 6 * error + 1e-6


@pytest.mark.parametrize('name', [n for n, f in FACTS.items() if f.orthogonal])
def test_rows_are_orthogonal_in_every_draw(name):
  sketch = jax.jit(jax.vmap(FACTS[name].op.sketch, (None, 0)))
  for seed in range(5):
    r = np.asarray(sketch(jax.random.key(seed), jnp.eye(64))).T
    want = 64 / len(r) * np.eye(len(r))
    np.testing.assert_allclose(r @ r.T, want, atol=1e-5)


@pytest.mark.parametrize(
  'name', [n for n, f in FACTS.items() if f.at_full_size]
)
def test_exact_at_full_size(name):
  out = both(FACTS[name].at_full_size)(KEY, TREE)
  chex.assert_trees_all_close(out, TREE, atol=1e-5)


@keyed
def test_zeros_at_the_end_change_nothing(name):
  op, x = FACTS[name].op, vector(TREE)[:50]
  padded = np.pad(x, (0, 14))
  table = op.sketch(KEY, x)
  np.testing.assert_allclose(table, op.sketch(KEY, padded), atol=1e-5)
  prefix = op.desketch(KEY, table, padded)[:50]
  np.testing.assert_allclose(op.desketch(KEY, table, x), prefix, atol=1e-5)


@every
def test_structure_and_dtype(name):
  op = FACTS[name].op
  tree = {
    'w': jnp.ones((8, 9), jnp.bfloat16),
    'b': [jnp.float32(2.0), jnp.zeros((0, 3)), np.ones(5, np.float32)],
  }
  like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
  table = op.sketch(KEY, tree)
  assert table.dtype == jnp.float32
  chex.assert_trees_all_equal_shapes_and_dtypes(table, op.like(tree))
  chex.assert_trees_all_equal(op.like(like), jnp.zeros_like(table))
  out = op.desketch(KEY, table, like)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, tree)
  # bfloat16 leaves are accumulated in float32.
  wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)
  chex.assert_trees_all_equal(table, op.sketch(KEY, wide))


@linear
def test_float64_stays_float64(name):
  op = FACTS[name].op
  with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(0), (64,), jnp.float64)
    y = normal_like(1, op.like(x))
    want = dot(op.sketch(KEY, x), y)
    out = op.desketch(KEY, y, x)
    assert y.dtype == out.dtype == jnp.float64
    np.testing.assert_allclose(FACTS[name].scale * dot(x, out), want, 1e-12)


@every
def test_jit_changes_nothing(name):
  op = FACTS[name].op
  table = op.sketch(KEY, TREE)
  chex.assert_trees_all_close(jax.jit(op.sketch)(KEY, TREE), table, atol=1e-5)
  fast = jax.jit(lambda key, y: op.desketch(key, y, TREE))(KEY, table)
  chex.assert_trees_all_close(fast, op.desketch(KEY, table, TREE), atol=1e-5)


@keyed
def test_equal_keys_equal_operators(name):
  op = FACTS[name].op
  table = op.sketch(KEY, TREE)
  chex.assert_trees_all_equal(table, op.sketch(jax.random.key(7), TREE))
  for other in (jax.random.key(8), jax.random.key(7, impl='rbg')):
    assert np.abs(table - op.sketch(other, TREE)).max() > 0.1


@every
def test_one_hash_for_the_whole_cohort(name):
  """Under `vmap` the hashes are computed once, and never by `jax.random`."""
  cohort = jax.tree.map(lambda x: jnp.stack([x] * 7), TREE)
  sketch = jax.vmap(FACTS[name].op.sketch, (None, 0))
  text = str(jax.make_jaxpr(sketch)(KEY, cohort))
  assert 'random_bits' not in text
  assert 'u32[7,' not in text


@every
def test_inside_shard_map_vmap_and_scan(name):
  """Varying inputs and a key that is not, under `check_vma=True`."""
  op = FACTS[name].op
  cohort = jax.tree.map(lambda x: jnp.stack([x, -x, 2 * x, x + 1]), TREE)
  there_and_back = lambda key, x: (op.sketch(key, x), both(op)(key, x))
  lanes = jax.vmap(there_and_back, (None, 0))

  def shard(key, xs):
    start = xs['b'][1][0] * op.like(TREE)  # varying, as the scan's carry is
    step = lambda total, x: (total + op.sketch(key, x), both(op)(key, x))
    total, out = jax.lax.scan(step, start, xs)
    return lanes(key, xs), total[None], out

  mesh = jax.make_mesh((2,), ('shard',), (jax.sharding.AxisType.Auto,))
  shards = jax.shard_map(
    shard, mesh=mesh, in_specs=(P(), P('shard')), out_specs=P('shard')
  )
  want, want_out = jax.jit(lanes)(KEY, cohort)
  mapped, totals, out = jax.jit(shards)(KEY, cohort)
  chex.assert_trees_all_close(mapped, (want, want_out), atol=1e-4)
  chex.assert_trees_all_close(out, want_out, atol=1e-4)
  pairs = np.reshape(want, (2, 2, *want.shape[1:])).sum(1)
  np.testing.assert_allclose(totals, pairs, atol=1e-4)


@every
def test_lowers_for_accelerators(name):
  fn = jax.jit(both(FACTS[name].op))
  exported = jax.export.export(fn, platforms=['tpu', 'cuda'])(KEY, TREE)
  assert exported.platforms == ('tpu', 'cuda')


@pytest.mark.parametrize(('size', 'd'), [(13, 77), (2, 77), (1, 3)])
def test_block_cyclic_has_one_law_on_all_backends(size, d):
  module = importlib.import_module('fl_sketch.sketches.block_cyclic')
  x = jax.random.normal(KEY, (d,))

  @jax.jit
  def forms(key, x):
    sketch = module._sketch_loop, module._sketch_gather
    tables = [form(size)(key, x) for form in sketch]
    desketch = module._desketch_loop, module._desketch_gather
    return tables, [form(size, d)(key, tables[0]) for form in desketch]

  tables, estimates = forms(KEY, x)
  np.testing.assert_allclose(*tables, atol=1e-5)
  np.testing.assert_array_equal(*estimates)


def test_count_sketch_is_read_back_in_blocks(monkeypatch):
  op, again = (sketches.count_sketch(4, 8) for _ in range(2))
  table = op.sketch(KEY, TREE)
  whole = op.desketch(KEY, table, TREE)
  module = importlib.import_module('fl_sketch.sketches.count_sketch')
  monkeypatch.setattr(module, 'BLOCK', 25)
  chex.assert_trees_all_equal(again.desketch(KEY, table, TREE), whole)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: sketches.srht(0), r'Expected size=0 to be an integer >= 1\.'),
    (lambda: sketches.make('block_cyclic', size=2.5), r'size=2\.5'),
    (lambda: sketches.count_sketch(0, 3), r'Expected rows=0'),
    (lambda: sketches.count_sketch(3, -1), r'Expected cols=-1'),
    (lambda: sketches.count_sketch(3, 3, combine='max'), "combine='max'"),
    (lambda: sketches.make('sha', size=3), "kind='sha' in .*'srht'"),
    (lambda: sketches.make('srht', rows=3), r"option='rows' .* \('size',\)"),
    (lambda: sketches.make('srht'), r"options \('size',\).*missing.*'size'"),
  ],
)
def test_bad_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_make_is_the_factory():
  options = {'rows': 4, 'cols': 8, 'combine': 'mean'}
  op = sketches.make('count_sketch', **options)
  want = sketches.count_sketch(**options).sketch(KEY, TREE)
  chex.assert_trees_all_equal(op.sketch(KEY, TREE), want)


@every
def test_bad_trees(name):
  op, size = FACTS[name].op, FACTS[name].size
  for bad in (jnp.ones(64, jnp.int32), jnp.ones(64, jnp.complex64)):
    with pytest.raises(TypeError, match=f"dtype='{bad.dtype}'"):
      op.sketch(KEY, {'w': bad})
  table = op.like(jnp.ones(64))
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, jnp.ones((3, 5, 7)), TREE)
  if name != 'identity':
    small = jnp.ones(size - 1)
    for fn in (
      lambda: op.like(small),
      lambda: op.sketch(KEY, small),
      lambda: op.desketch(KEY, table, small),
    ):
      with pytest.raises(ValueError, match=rf'Expected .* <= d={size - 1}\.'):
        fn()
