"""That `verify` passes what keeps its promises alone; alarms below 1e-6."""

import functools

from fl_sketch import sketches
from fl_sketch.sketches import verification
from fl_sketch.sketches.verification import FALSE_ALARM, verify
import jax
import jax.numpy as jnp
import numpy as np
import operators
import pytest
from refusals import refused_calls

pytestmark = pytest.mark.xdist_group('verify')  # shares `kept`
KEY = jax.random.key(5)
LARGER = sketches.count_sketch(4, 32, combine='mean', allow_larger=True)
OPERATORS = {n: facts.op for n, facts in operators.OPERATORS.items()}
OPERATORS |= {'larger': LARGER}


def quiet(op, d, draws=2000):
  return verify(op, d, KEY, draws=draws, out=lambda text: None)


@functools.cache
def kept(name):
  return quiet(OPERATORS[name], 64)


def promising(name, **promises):
  op = OPERATORS[name]
  return op._replace(properties=op.properties._replace(**promises))


def of(result):
  return {row.quantity: row for row in result.rows}


VECTORS = 'random', 'first spike', 'last spike', 'flat'
MOMENTS = [f'second moment, {vector}' for vector in VECTORS]


@pytest.mark.representatives('gaussian')
@pytest.mark.covers('S0-Def4.1/D9', 'S2-Def1')
@pytest.mark.parametrize('name', OPERATORS)
def test_kept_promises_hold(name):
  result = kept(name)
  assert result.ok
  rows = of(result)
  for moment in MOMENTS:
    row = rows[moment]
    if name == 'median':
      assert row.exact is row.holds is None
      assert 2 < row.low < row.high < 7
    else:  # at these sizes every vector attains the constant
      assert row.low <= row.exact + 1e-4
      assert row.high >= row.exact - 1e-4
  largest = rows['coordinate-wise, largest']
  assert largest.holds is (None if name == 'median' else True)
  assert rows['sketch is linear'].holds
  linear = rows['desketch is linear']
  assert (linear.measured > 0.1) is (name == 'median')
  assert ('desketch is adjoint' in rows) is (name != 'median')
  assert ('exact at b = d' in rows) is (name == 'identity')


ams = OPERATORS['ams']
gaussian = OPERATORS['gaussian'].properties.variance
PAIRS = [f'coordinate-wise, {h} and {g}' for h, g in verification._PAIRS]
BROKEN = {
  'biased': (
    promising('ams', adjoint_scale=1 / 0.9)._replace(
      desketch=lambda *args: 0.9 * ams.desketch(*args)
    ),
    [
      'bias, in standard errors',
      'coordinate-wise, first spike and first spike',
      'coordinate-wise, last spike and last spike',
    ],
  ),
  'gaussian': (
    promising(
      'gaussian',
      variance=lambda g, h: 0.6 * gaussian(g, h),
      alpha=lambda like: 3.2,
      coordinate_wise=lambda like: 1.2,
      adjoint_scale=2.0,
      orthogonal_rows=True,
    ),
    [
      *MOMENTS,
      *PAIRS,
      'coordinate-wise, largest',
      'desketch is adjoint',
      'rows are orthogonal',
    ],
  ),
  'linear': (promising('median', linear=True), ['desketch is linear']),
}


@pytest.mark.covers('S0-Def4.1/D9')
@pytest.mark.parametrize('name', BROKEN)
def test_a_broken_promise_fails_its_row(name):
  op, want = BROKEN[name]
  result = quiet(op, 64)
  assert not result.ok
  assert [r.quantity for r in result.rows if r.holds is False] == want
  assert 'FAILS' in str(result)


@pytest.mark.parametrize(
  'size', [16, pytest.param(12, marks=pytest.mark.nightly)]
)
def test_what_padding_may_break_is_judged_where_nothing_is_padded(size):
  properties = OPERATORS['gaussian'].properties._replace(
    orthogonal_rows=True, exact_at_full_size=True
  )
  op = sketches.gaussian(size)._replace(properties=properties)
  rows = of(quiet(op, size, draws=100))
  for name in ('rows are orthogonal', 'exact at b = d'):
    assert rows[name].measured > 0.01
    assert rows[name].holds is (False if size == 16 else None)


@pytest.mark.covers('S0-Tab1')
def test_the_table():
  result = kept('mean')
  title, _, head, rule, *lines = str(result).splitlines()
  assert title.startswith('count_sketch: d=64, b=16, draws=2000, ')
  assert f'1 - {FALSE_ALARM:g}' in title
  cells = lambda line: [cell.strip() for cell in line.split('|')[1:-1]]
  assert cells(head)[:3] == ['quantity', 'printed', 'exact']
  assert set(rule) == set('|- ')
  assert len(lines) == len(result.rows)
  assert {len(line) for line in (head, rule, *lines)} == {len(head)}
  assert cells(lines[1])[:3] == ['second moment, random', '12', '3.938']
  assert cells(lines[4])[-1].startswith('holds')
  row = of(result)['coordinate-wise, largest']
  assert (row.printed, row.exact) == (3.0, 2.0)
  # Too few draws for the last quantile.
  assert cells(lines[17])[0] == 'tail, quantile 0.999'
  assert cells(lines[17])[4].endswith(', inf]')


def test_a_tree_and_tables_that_are_trees():
  """With the numbers of the vector that the tree holds."""
  op = OPERATORS['gaussian']
  listed = op._replace(
    sketch=lambda key, tree: [op.sketch(key, tree)],
    desketch=lambda key, table, like: op.desketch(key, table[0], like),
    zero_table=lambda tree: [op.zero_table(tree)],
  )
  bfloat16 = jax.ShapeDtypeStruct((6, 8), jnp.bfloat16)
  result = quiet(listed, {'b': jnp.zeros(16), 'w': bfloat16})
  for row, want in zip(result.rows, kept('gaussian').rows, strict=True):
    np.testing.assert_allclose(row[3:6], want[3:6], rtol=1e-3, atol=1e-5)


def test_equal_keys_equal_numbers():
  texts, op = [], OPERATORS['gaussian']
  result = verify(op, 64, jax.random.key(5), draws=2000, out=texts.append)
  assert result == kept('gaussian')
  assert texts == [str(result)]
  other = verify(op, 64, jax.random.key(6), draws=100, out=texts.append)
  assert other.rows[1].measured != result.rows[1].measured


mean = OPERATORS['mean']
test_bad_arguments = refused_calls(
  (lambda: verify(mean, 15, KEY), r'rows=4 \* cols=4 exceeds d=15'),
  (lambda: verify(mean, 64, KEY, draws=99), 'draws=99 must be >= 100'),
  (lambda: verify(sketches.identity(), 1, KEY), 'd=1 >= 2'),
  (lambda: verify(mean._replace(properties=None), 64, KEY), 'states none'),
  (lambda: verify(mean, jnp.zeros(64, jnp.int32), KEY), "dtype='int32'"),
  (lambda: verify(mean, 64, 3), 'key'),
  (lambda: verify(mean, 64, jax.random.split(KEY)), 'key'),
  error=(TypeError, ValueError),
)
