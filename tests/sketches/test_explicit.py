"""Operators of given matrices and hash functions, as other code hands over."""

from fl_sketch import sketches
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, TREE, vector
import pytest
from refusals import refused_calls

RNG = np.random.default_rng(5)
D, ROWS, COLS = 64, 3, 5
MATRIX = RNG.normal(size=(8, D)).astype(np.float32)
BUCKETS = RNG.integers(0, COLS, (ROWS, D))
SIGNS = RNG.choice([-1.0, 1.0], (ROWS, D))
MEAN = sketches.from_hashes(BUCKETS, SIGNS, COLS, combine='mean')
MEDIAN = sketches.from_hashes(BUCKETS, SIGNS, COLS)


def table_by_hand(x):
  table = np.zeros((ROWS, COLS))
  for j in range(ROWS):
    for i in range(D):
      table[j, BUCKETS[j, i]] += SIGNS[j, i] * x[i]
  return table


@pytest.mark.parametrize('combine', ['median', 'mean'])
def test_given_hashes_are_those_of_the_table(combine):
  """Catches rows or signs that are mixed up."""
  op = {'median': MEDIAN, 'mean': MEAN}[combine]
  x = vector(TREE)
  table = op.sketch(KEY, TREE)
  np.testing.assert_allclose(table, table_by_hand(x), atol=1e-5)
  read = [SIGNS[j] * np.asarray(table)[j, BUCKETS[j]] for j in range(ROWS)]
  want = getattr(np, combine)(read, axis=0)
  out = op.desketch(KEY, table, TREE)
  np.testing.assert_allclose(vector(out), want, atol=1e-5)


@operators.law(operators.LINEAR, fast=['gaussian'])
def test_the_matrix_of_an_operator_is_that_operator(name):
  """Catches an operator whose numbers depend on more than its matrix."""
  draw, _ = operators.matrix(name)
  if np.iscomplexobj(draw):
    draw = np.concatenate([draw.real, draw.imag])
  op = operators.OPERATORS[name].op
  scale = sketches.properties(op).adjoint_scale
  twin = sketches.from_matrix(jnp.asarray(draw, jnp.float32))
  want = op.desketch(KEY, op.sketch(KEY, TREE), TREE)
  out = twin.desketch(KEY, twin.sketch(KEY, TREE), TREE)
  np.testing.assert_allclose(vector(out), scale * vector(want), atol=1e-3)


@pytest.mark.parametrize('op', [sketches.from_matrix(MATRIX), MEAN])
def test_trees_of_other_sizes_are_refused(op):
  """Broadcast instead, they would be read with the hashes of others."""
  small = {'w': jnp.ones(D - 1)}
  with pytest.raises(ValueError, match=f'd={D - 1} must be {D}, the columns'):
    op.sketch(KEY, small)
  with pytest.raises(ValueError, match=f'd={D - 1} must be {D}, the columns'):
    op.desketch(KEY, op.zero_table(TREE), small)


test_arrays_that_are_no_operator_are_refused = refused_calls(
  (lambda: sketches.from_matrix(SIGNS[0]), r'matrix.shape=\(64,\) must be'),
  (lambda: sketches.from_hashes(BUCKETS, SIGNS[:2], 5), r'shape=\(3, 64\) and'),
  (lambda: sketches.from_hashes(BUCKETS, SIGNS, 0), 'cols=0'),
  (lambda: sketches.from_hashes(BUCKETS, SIGNS, 5, combine='max'), 'combine='),
)
