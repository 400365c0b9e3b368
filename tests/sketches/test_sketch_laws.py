"""Laws of operators, also beside lengths where their code changes."""

import functools

import exact_variances
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, OPERATORS, TREE, normal_like, vector
import pytest

FEW, MANY = 2500, 25_000  # draws, in the fast and the nightly tier
X = vector(TREE) / np.linalg.norm(vector(TREE))
HALF = np.where(np.arange(64) < 32, 32**-0.5, 0.0)
FOURTH = np.where(np.arange(64) % 4 == 1, 0.25, 0.0)  # a block of block_srht
FORMS = {'block_cyclic_4': {'cols': 4}, 'block_srht': {'block': 16}}
VECTORS = np.float32([X, np.eye(64)[5], np.full(64, 1 / 8), HALF, FOURTH])


def stated(name):
  return OPERATORS[name].op.properties


def estimates(name, x, draws, seed=1):
  """Of a vector, a key each: f64[draws, d]."""
  keys = jax.random.split(jax.random.key(seed), draws)
  return np.float64(operators.lanes(name, keys, np.tile(x, (draws, 1)))[1])


@operators.each_structure
def test_linear(name):
  x, y = (vector(normal_like(seed, TREE)) for seed in (2, 3))
  vectors = [x, y, 2 * x - 3 * y, x + y]
  tables, out = operators.lanes(name, KEY, vectors)
  apart = 2 * tables[0] - 3 * tables[1]
  np.testing.assert_allclose(tables[2], apart, atol=1e-4)
  np.testing.assert_allclose(tables[3], tables[0] + tables[1], atol=1e-5)
  same = np.allclose(out[3], out[0] + out[1], atol=1e-4)
  assert same == stated(name).linear


@operators.each_linear_structure
def test_desketch_is_the_adjoint(name):
  """R^H y / c, for tables y = R x of any x."""
  for seed in range(3):
    r, read = operators.matrix(name, seed)
    want = (r.conj().T @ r).real / stated(name).adjoint_scale
    np.testing.assert_allclose(read, want, atol=1e-4)


@operators.each_structure
@pytest.mark.parametrize(('d', 'draws'), [
  (64, FEW),
  pytest.param(57, MANY, marks=pytest.mark.nightly),  # short blocks, odd
])  # fmt: skip
def test_moments(name, d, draws):
  # 64 means within 6 standard errors, and one within 5: 7e-7 to miss one.
  x = X[:d]
  sample = estimates(name, x, draws)
  means, errors = operators.mean_and_error(sample)
  assert (np.abs(means - x) < 6 * errors + 1e-6).all()

  if OPERATORS[name].alpha is None:
    assert stated(name).alpha is None
    return
  ratio = np.square(sample).sum(1) / np.square(x, dtype=np.float64).sum()
  mean, error = operators.mean_and_error(ratio - 1)
  alpha = stated(name).alpha(d)
  if d == 64:
    assert alpha == pytest.approx(OPERATORS[name].alpha, rel=1e-12)
  elif name.startswith('block_cyclic'):
    variance = functools.partial(exact_variances.variance, OPERATORS[name].op)
    form = FORMS.get(name, {})
    alpha = sum(variance(x, unit, **form) for unit in np.eye(d)) / (x @ x)
  # Of many draws five standard errors are below 2 % of the constant.
  assert abs(mean - alpha) < 5 * error + 1e-6
  assert 5 * error <= 0.02 * (MANY / draws) ** 0.5 * alpha


@operators.each_linear_structure
def test_coordinate_wise_constant(name):
  """Catches a bound that is too small or from afar, or another variance."""
  # 25 pairs at 6 standard errors, nominally: 8e-8 to miss one of two sides.
  op, bound = OPERATORS[name].op, stated(name).coordinate_wise(64) / 16
  largest = 0.0
  for g in VECTORS:
    sample = estimates(name, g, FEW, seed=2)
    for h in VECTORS:
      mean, error = operators.mean_and_error(np.square(sample @ h))
      excess = mean - (h @ g) ** 2
      assert excess < bound + 6 * error + 1e-5
      errors = np.square((sample - g[None]) @ h)
      mean, error = operators.mean_and_error(errors)
      exact = exact_variances.variance(op, g, h, **FORMS.get(name, {}))
      assert abs(mean - exact) < 6 * error + 1e-5
      largest = max(largest, excess)
  # Not a bound from afar: some pair comes near.
  assert largest >= 0.35 * bound - 1e-6


@operators.law(operators.LINEAR, fast=['srft'])
def test_second_derivatives(name):
  """Of ||R x||^4, whose gradient is 4 ||R x||^2 R^H R x, both ways."""
  sketch = lambda x: OPERATORS[name].op.sketch(KEY, x)
  loss = lambda x: (jnp.abs(sketch(x)) ** 2).sum() ** 2
  x, v = vector(TREE), vector(normal_like(4, TREE))
  grad = jax.grad(loss)
  forward = lambda x: jax.jvp(grad, (x,), (v,))[1]
  back = jax.grad(lambda x: jnp.vdot(grad(x), v))
  got = operators.jit(lambda x: (grad(x), forward(x), back(x)))(x)
  r, _ = operators.matrix(name)
  a = (r.conj().T @ r).real
  first = 4 * (x @ a @ x) * a @ x
  second = 8 * (v @ a @ x) * a @ x + 4 * (x @ a @ x) * a @ v
  for one, want in zip(got, (first, second, second), strict=True):
    scale = np.abs(want).max()
    np.testing.assert_allclose(one / scale, want / scale, atol=1e-4)


@operators.each
def test_rows_are_orthogonal_in_every_draw_and_as_large_as_stated(name):
  """Catches repeated rows, and a table of another size than is billed."""
  errors = []
  for seed in range(3):
    r, _ = operators.matrix(name, seed)
    want = 64 / len(r) * np.eye(len(r))
    errors.append(np.abs(r @ r.conj().T - want).max())
  assert (max(errors) < 1e-5) == OPERATORS[name].orthogonal
  table = OPERATORS[name].op.zero_table(TREE)
  floats = table.size * table.dtype.itemsize / 4
  assert stated(name).floats(64) == stated(name).floats(TREE) == floats


BLOCKS = sketches.block_srht(26, block=256), sketches.block_srht(48, block=16)
COPIES = sketches.block_cyclic(32, sparsity=2)
FAST = {'one block and a rest': (BLOCKS[0], 257)}  # operators, and lengths
NIGHTLY = {
  'blocks and a rest': (BLOCKS[1], 95, 96, 97, 111),
  'one block of 4096': (sketches.block_srht(410), 4095, 4096, 4097, 4810, 8191),
  'two blocks of 4096': (sketches.block_srht(410), 8192, 8193, 12_287),
  'rows, by a product': (sketches.block_srht(128), 1024, 1025),
  'rows, by a transform': (sketches.block_srht(129), 1024, 1025),
  'padding of srht': (sketches.srht(40), 255, 256, 257),
  'padding of dct': (sketches.dct(40), 4096, 4097),
  'parts of dct': (sketches.dct(40), 8191, 8192, 8193),
  'parts of srft': (sketches.srft(40), 8191, 8192, 8193),
  'planes of signs': (sketches.block_cyclic(16), 511, 512, 513),
  'tiles of a block': (sketches.block_cyclic(8192), 16_384, 20_000),
  'long tiles': (sketches.block_cyclic(8193), 16_386, 20_000),
  'copies of blocks': (COPIES, 511, 513),
  'planes of an embedding': (sketches.sparse_embedding(40, 40), 80, 81),
  'more planes of ams': (sketches.ams(32), 300),
  'a network of medians': (sketches.count_sketch(128, 4), 600),
  'a sort of medians': (sketches.count_sketch(129, 4), 600),
  'small leaves': (sketches.srht(40), 2**16 - 1, 2**16, 2**16 + 1),
}
LONG = {
  'tiles of columns': (sketches.sparse_embedding(40, 8), 131_071, 131_073),
  'tiles of a dense matrix': (sketches.gaussian(40), 26_214, 26_215),
  'pieces of a transform': (sketches.srht(40), 2**18, 2**18 + 1),
  'trees lane by lane': (sketches.block_srht(410), 2**18 - 1, 2**18 + 1),
  'tiles of rows': (sketches.block_srht(410), 2**19 - 1, 2**19, 2**19 + 4097),
  'pieces of a grid': (sketches.block_srht(8320), 2**18 - 1, 2**18, 266_241),
  'tiles of signs': (sketches.dct(40), 2**20 - 1, 2**20 + 1),
}


def table_of(cases, mark):
  return [
    pytest.param(op, d, id=f'{name}, d={d}', marks=mark)
    for name, (op, *dims) in cases.items()
    for d in dims
  ]


@pytest.mark.parametrize(
  ('op', 'd'),
  table_of(FAST, ())
  + table_of(NIGHTLY, pytest.mark.nightly)
  + table_of(LONG, pytest.mark.long),
)
def test_the_spread_of_a_norm_is_as_stated(op, d):
  """Catches transforms that undo one another: 20 times a Gaussian's spread."""
  place, stated = np.arange(d), (op.linear_reader or op).properties
  rows = [place == at for at in (0, d // 3, d - 1)]
  rows += [place % -(-d // 32) == 0, place >= d - 16, place < d / 2]
  xs = [np.float32(row / row.sum() ** 0.5) for row in rows]
  square = lambda key, x: jnp.square(jnp.abs(op.sketch(key, x))).sum()
  lanes = operators.jit(jax.vmap(square, (0, None)))
  keys = jax.random.split(operators.KEY, 400)
  block = {BLOCKS[0]: 256, BLOCKS[1]: 16}.get(op, 4096)
  cols = 16 if op is COPIES else 0
  for x in xs:
    energies = np.float64(lanes(keys, x)) / (stated.adjoint_scale or 1)
    law = exact_variances.variance(op, x, x, cols=cols, block=block)
    if law is None:
      law = 2 / stated.floats(d) * -(-d // min(block, 1 << d.bit_length() - 1))
    mean, error = operators.mean_and_error(energies)
    assert abs(mean - 1) < 6 * error + 1e-4  # 2e-9 to miss one, nominally
    # Of 400 keys: 4e-10 to miss one for normal numbers.
    assert energies.var() < 1.6 * law + 1e-6
