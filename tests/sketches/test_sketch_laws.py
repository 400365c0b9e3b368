"""Laws of every operator, by algebra in one draw and by moments over many."""

import functools

import exact_variances
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


@pytest.mark.covers('S0-Alg1-lin', 'S0-Thm4.2', 'S4-Prop1-3')
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


@pytest.mark.covers(
  'S0-D3[srht]', 'S0-Thm4.2', 'S0-Tab1', 'S0-LemD11', 'S2-Prop1[median]',
  'S4-Prop1-3',
)  # fmt: skip
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


@pytest.mark.covers('S0-Def4.1/D9', 'S0-LemD16, RemD17[sampling]')
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


ORTHOGONAL = {
  'identity', 'sampling', 'block_cyclic', 'srht', 'block_srht', 'dct', 'srft',
}  # fmt: skip


@operators.each
def test_rows_are_orthogonal_in_every_draw_and_as_large_as_stated(name):
  """Catches repeated rows, and a table of another size than is billed."""
  errors = []
  for seed in range(3):
    r, _ = operators.matrix(name, seed)
    want = 64 / len(r) * np.eye(len(r))
    errors.append(np.abs(r @ r.conj().T - want).max())
  assert (max(errors) < 1e-5) == (name in ORTHOGONAL)
  table = OPERATORS[name].op.zero_table(TREE)
  floats = table.size * table.dtype.itemsize / 4
  assert stated(name).floats(64) == stated(name).floats(TREE) == floats
