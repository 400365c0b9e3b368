"""Operators by name, and bad arguments, trees and tables."""

from fl_sketch import sketches
import jax.numpy as jnp
from operators import KEY, OPERATORS, TREE
import pytest
from refusals import counts_below_one, refused

# Catches an operator that is built with a size of 0, or 2.5.
test_a_count_below_one_is_refused_by_name = counts_below_one(sketches, {
  'gaussian': {'size': 8}, 'ams': {'size': 8}, 'dct': {'size': 8},
  'srft': {'size': 8}, 'srht': {'size': 8}, 'uniform_sampling': {'size': 8},
  'block_srht': {'size': 8, 'block': 8}, 'count_sketch': {'rows': 3, 'cols': 2},
  'block_cyclic': {'size': 8, 'sparsity': 2},
  'sparse_embedding': {'size': 8, 'sparsity': 2},
})  # fmt: skip


test_options_that_do_not_fit_are_refused_by_name = refused(
  lambda x: sketches.make(x[0], **x[1]),
  (('block_srht', {'size': 8, 'block': 24}), 'block'),
  (('block_cyclic', {'size': 6, 'sparsity': 4}), 'sparsity'),
  (('count_sketch', {'rows': 3, 'cols': 3, 'combine': 'max'}), 'combine'),
  (('dct', {'size': 3, 'rows': 3}), 'rows'), (('sha', {'size': 3}), 'sketch'),
)  # fmt: skip


@pytest.mark.parametrize('name', OPERATORS)
def test_bad_trees(name):
  """Catches tables of another shape, and trees that are no floats or small."""
  op, small = OPERATORS[name].op, jnp.ones(15)
  with pytest.raises(ValueError, match='dtype'):
    op.sketch(KEY, {'w': jnp.ones(64, jnp.int32)})
  with pytest.raises(ValueError, match='table'):
    op.desketch(KEY, jnp.ones((3, 5, 7)), TREE)
  if name != 'identity':
    with pytest.raises(ValueError, match='exceeds'):
      op.sketch(KEY, small)
    with pytest.raises(ValueError, match='exceeds'):
      op.desketch(KEY, op.zero_table(TREE), small)
