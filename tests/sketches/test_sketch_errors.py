"""Operators by name, and bad arguments, trees and tables."""

from fl_sketch import sketches
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import operators
from operators import KEY, OPERATORS, TREE
import pytest

NO_COUNT = st.one_of(st.integers(max_value=0), st.floats(), st.none())
COUNTS = {  # the options that count something, of calls that are valid
  'gaussian': {'size': 8}, 'ams': {'size': 8}, 'dct': {'size': 8},
  'srft': {'size': 8}, 'srht': {'size': 8}, 'uniform_sampling': {'size': 8},
  'block_srht': {'size': 8, 'block': 8}, 'count_sketch': {'rows': 3, 'cols': 2},
  'block_cyclic': {'size': 8, 'sparsity': 2},
  'sparse_embedding': {'size': 8, 'sparsity': 2},
}  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.sampled_from(sorted(COUNTS)), st.data())
def test_a_count_below_one_is_refused_by_name(name, data):
  """Catches an operator that is built with a size of 0, or 2.5."""
  option = data.draw(st.sampled_from(sorted(COUNTS[name])))
  bad = COUNTS[name] | {option: data.draw(NO_COUNT)}
  with pytest.raises(ValueError, match=option):
    getattr(sketches, name)(**bad)


@pytest.mark.parametrize(('name', 'options', 'field'), [
  ('block_srht', {'size': 8, 'block': 24}, 'block'),
  ('block_cyclic', {'size': 6, 'sparsity': 4}, 'sparsity'),
  ('sparse_embedding_2', {'size': 6, 'sparsity': 4}, 'sparsity'),
  ('sparse_embedding_1', {'size': 6, 'sparsity': 7}, 'sparsity'),
  ('count_sketch', {'rows': 3, 'cols': 3, 'combine': 'max'}, 'combine'),
  ('layerwise', {'factory': 'identity', 'size': 3}, 'factory'),
  ('dct', {'size': 3, 'rows': 3}, 'rows'),
  ('srht', {}, 'size'),
  ('sha', {'size': 3}, 'sketch'),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused_by_name(name, options, field):
  with pytest.raises(ValueError, match=field):
    sketches.make(name, **options)


MADE = (
  ({'kind': 'count_sketch', 'rows': 4, 'cols': 8, 'combine': 'mean'},
    sketches.count_sketch(4, 8, combine='mean')),
  ({'kind': 'count_sketch', 'rows': 9, 'cols': 99, 'allow_larger': True},
    sketches.count_sketch(9, 99, allow_larger=True)),
  ({'kind': 'sparse_embedding_1', 'size': 8, 'sparsity': 3},
    sketches.sparse_embedding(8, 3, kind='I')),
  ({'kind': 'layerwise', 'factory': 'srht', 'size': 9, 'allocation': 'sqrt'},
    sketches.layerwise(sketches.srht, 9, 'sqrt')),
)  # fmt: skip


def test_make_is_the_factory():
  program = lambda op: str(
    jax.make_jaxpr(lambda *args: operators.table_and_back(op, *args))(KEY, TREE)
  )
  programs = [program(want) for _, want in MADE]
  assert [program(sketches.make(**options)) for options, _ in MADE] == programs
  assert len(set(programs)) == len(MADE)


@pytest.mark.parametrize('name', OPERATORS)
def test_bad_trees(name):
  """Catches tables of another shape, and trees that are no floats or small."""
  op = OPERATORS[name].op
  operators.bad_trees(op)
  table = op.zero_table(jnp.ones(64))
  with pytest.raises(ValueError, match='table'):
    op.desketch(KEY, jnp.ones((3, 5, 7)), TREE)
  if name != 'identity':
    operators.refuses(op, jnp.ones(15), table)
