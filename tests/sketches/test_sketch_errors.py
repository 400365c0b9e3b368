"""Operators by name, and what bad arguments, trees and tables are told."""

from fl_sketch import sketches
import jax
import jax.numpy as jnp
import operators
from operators import KEY, OPERATORS, TREE
import pytest
from refusals import refused_calls

test_bad_arguments = refused_calls(
  (lambda: sketches.srht(0), r'size=0 must be an integer >= 1\.'),
  (lambda: sketches.block_srht(8, block=24), 'block=24 must be a power of two'),
  (lambda: sketches.gaussian(-1), r'size=-1'),
  (lambda: sketches.ams(0), r'size=0'),
  (lambda: sketches.dct(0), r'size=0'),
  (lambda: sketches.srft(1.0), r'size=1\.0'),
  (lambda: sketches.uniform_sampling(0), r'size=0'),
  (lambda: sketches.block_cyclic(6, sparsity=4), 'sparsity=4 must divide size'),
  (lambda: sketches.block_cyclic(6, sparsity=0), 'sparsity=0'),
  (lambda: sketches.sparse_embedding(6, 4), 'sparsity=4 must divide size=6'),
  (lambda: sketches.sparse_embedding(6, 7, kind='I'),
    'sparsity=7 exceeds size=6'),
  (lambda: sketches.sparse_embedding(6, 2, kind='1'), "kind='1'"),
  (lambda: sketches.make('block_cyclic', size=2.5), r'size=2\.5'),
  (lambda: sketches.count_sketch(0, 3), 'rows=0 must'),
  (lambda: sketches.count_sketch(3, -1), 'cols=-1 must'),
  (lambda: sketches.count_sketch(3, 3, combine='max'), "combine='max'"),
  (lambda: sketches.make('sha', size=3), "sketch='sha' must .*'srht'"),
  (lambda: sketches.make('layerwise', factory='identity', size=3),
    "factory='identity' must .*'srht'"),
  (lambda: sketches.make('dct', size=3, rows=3),
    r"\['rows'\]; it has \('size',\)"),
  (lambda: sketches.make('srht'), r"sketch 'srht' requires options \['size'\]"),
  (lambda: sketches.properties(sketches.Sketch(*[None] * 3)), 'states none'),
)  # fmt: skip


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
  op = OPERATORS[name].op
  operators.bad_trees(op)
  table = op.zero_table(jnp.ones(64))
  with pytest.raises(ValueError, match=r'table\.shape'):
    op.desketch(KEY, jnp.ones((3, 5, 7)), TREE)
  if name != 'identity':
    operators.refuses(op, jnp.ones(15), table, r' exceeds d=15;')
