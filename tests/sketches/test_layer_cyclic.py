"""Leaves that share one table, in parts that a program may change."""

from fl_sketch import sketches
from fl_sketch.sketches import base
import jax
import numpy as np
import operators
from operators import KEY, TREE, vector
import pytest
from refusals import refused
from sketch_twins import SHIFT, SIGN, families, kwise, seeds, sign, word

DIMS = 15, 1, 48  # of TREE
PARTS = (5, 1, 12), (4, 2, 12), (15, 1, 2)


def twin(sizes):
  """R of TREE, one coordinate at a time."""
  r, start, offset = np.zeros((sum(sizes), sum(DIMS))), 0, 0
  (family,), (seed,) = families(1, 2, SHIFT), seeds(1, SIGN)
  for d, b in zip(DIMS, sizes, strict=True):
    for i in range(d):
      block, u = divmod(i, b)
      row = offset + (u + kwise(start + block, family)) % b
      r[row, start + i] = sign(word(start + i, seed), 0)
    start, offset = start + d, offset + b
  return r


@pytest.mark.parametrize('small', [2, base.SMALL_LEAF], ids=['alone', 'joined'])
def test_the_matrix_is_its_twin_whatever_the_parts(small, set_constant):
  """Catches a part that reaches into the next, and parts that are constants."""
  set_constant(base, 'SMALL_LEAF', small)

  @operators.jit
  def there_and_back(sizes, key):
    op = sketches.layer_cyclic(18, sizes)
    return operators.table_and_back(op, key, TREE)

  for sizes in PARTS:
    r = twin(sizes)
    table, out = there_and_back(np.int32(sizes), KEY)
    np.testing.assert_allclose(table, r @ vector(TREE), atol=1e-5)
    np.testing.assert_allclose(vector(out), r.T @ table, atol=1e-5)


def test_what_is_no_smaller_than_its_leaf_is_exact():
  op = sketches.layer_cyclic(40, (15, 4, 21))
  out = operators.jit(operators.both(op))(KEY, TREE)
  same = jax.tree.map(lambda x, y: bool((x == y).all()), TREE, out)
  assert jax.tree.leaves(same) == [True, True, False]


# Catches parts that overlap: below 1, of another sum, number or tree.
test_parts_that_do_not_fit_are_refused = refused(
  lambda x: sketches.layer_cyclic(max(sum(x), 18), x).zero_table(TREE),
  ((18, 0, 2), 'size'), ((1, 1), 'size'), ((9, 9), 'size'),
  ((60, 1, 4), 'size'),
)  # fmt: skip
