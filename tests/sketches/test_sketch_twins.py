"""Operators against the NumPy client of docs/examples, column by column."""

from fl_sketch import sketches
from fl_sketch.sketches import block_rows
import jax
import numpy as np
import operators
from operators import KEY, OPERATORS
import pytest


def normal(seed, d):
  return jax.random.normal(jax.random.key(seed), (d,))


def there_and_back(op, x):
  return operators.table_and_back(op, KEY, x)


@pytest.mark.smoke
@operators.each
def test_matrix_is_its_twin(name):
  """What the laws of an operator measure is what its formula says."""
  want = operators.twin(OPERATORS[name].op, 64)
  got, read = operators.matrix(name)
  np.testing.assert_allclose(got, want.reshape(-1, 64), atol=2e-5)
  if want.ndim > 2:  # rows of the Count Sketch, each an estimate
    combine = {'median': np.median, 'mean': np.mean}[name]
    want = combine(want.mT @ want, axis=0)
  else:
    want = (want.conj().T @ want).real
  np.testing.assert_allclose(read, want, atol=2e-5)


TWINS = {
  'median': (sketches.count_sketch(35, 2), 77),
  'gaussian': (sketches.gaussian(7), 77),
  'ams': (sketches.ams(40), 77),
  'kind I': (sketches.sparse_embedding(9, 4, kind='I'), 77),
  'all rows': (sketches.sparse_embedding(5, 5, kind='I'), 20),
  'kind II': (sketches.sparse_embedding(39, 3), 77),
  'sampling': (sketches.uniform_sampling(20), 77),
  'cyclic 2': (sketches.block_cyclic(2), 77),
  'stacked': (sketches.block_cyclic(12, sparsity=3), 77),
  'srht': (sketches.srht(20), 77),
  'blocks': (sketches.block_srht(20, block=16), 77),
  'blocks 77': (sketches.block_srht(77, block=8), 77),
  'a block': (sketches.block_srht(20), 77),
  'many rows': (sketches.block_srht(300), 600),
  'dct': (sketches.dct(20), 77),
  'srft': (sketches.srft(20), 77),
}


@pytest.mark.representatives('cyclic 2', 'blocks')
@pytest.mark.parametrize('name', TWINS)
def test_other_sizes_are_their_twins(name):
  """Short blocks, padding, odd lengths, and more signs than a word has.

  Catches blocks 32 apart that share their signs: 'cyclic 2' has 39 blocks.
  """
  op, d = TWINS[name]
  x, r = normal(6, d), operators.twin(op, d)
  table, out = there_and_back(op, x)
  np.testing.assert_allclose(table, r @ x, atol=2e-5)
  if name == 'median':
    want = np.median(np.einsum('jci,jc->ji', r, table), axis=0)
  else:
    want = (r.conj().T @ np.asarray(table)).real
  np.testing.assert_allclose(out, want, atol=2e-5)


@pytest.mark.parametrize('d', [48, pytest.param(77, marks=pytest.mark.nightly)])
def test_pieces_of_a_grid_are_their_twin(d, set_constant):
  """Catches a piece with another's signs, and a key that varies, unlike x."""
  for name, value in {'_FEW': 0, '_WIDE': 1, '_PIECES': 2}.items():
    set_constant(block_rows, name, value)
  op, x, keys = sketches.block_srht(20, 16), normal(6, d), jax.random.split(KEY)
  one = jax.vmap(lambda key: operators.table_and_back(op, key, x))
  shards = operators.two_shards(one, (True,))
  for key, table, out in zip(keys, *operators.jit(shards)(keys), strict=True):
    r = operators.twin(op, d, key)
    np.testing.assert_allclose(table, r @ x, atol=2e-5)
    np.testing.assert_allclose(out, r.T @ np.asarray(table), atol=2e-5)
