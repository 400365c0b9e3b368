"""That `verify` passes what keeps its properties alone; alarms below 1e-6."""

import functools

from fl_sketch import codecs, runs, sketches
from harness import SMALL
import jax
import jax.numpy as jnp
import operators
import pytest

pytestmark = pytest.mark.xdist_group('verify')  # shares `report`
KEY = jax.random.key(5)
OPERATORS = {name: facts.op for name, facts in operators.OPERATORS.items()}
OPERATORS['larger'] = sketches.count_sketch(
  4, 32, combine='mean', allow_larger=True
)


@functools.cache
def report(name):
  return sketches.verify(OPERATORS[name], 64, KEY, draws=2000)


def failed(result):
  return [row.quantity for row in result.rows if row.holds is False]


class Halved(sketches.ams):
  """An operator that reads half of each number."""

  def desketch(self, key, table, like):
    return 0.5 * super().desketch(key, table, like)


VECTORS = 'random', 'first spike', 'last spike', 'flat'
MOMENTS = [f'second moment, {vector}' for vector in VECTORS]


@pytest.mark.representatives('gaussian')
@pytest.mark.parametrize('name', OPERATORS)
def test_true_properties_hold(name):
  """Catches a false alarm, and an interval that misses the exact constant."""
  result = report(name)
  assert result.ok, result
  rows = {row.quantity: row for row in result.rows}
  for moment in MOMENTS:
    row = rows[moment]
    assert row.low <= row.measured <= row.high
    assert f'{moment}: at most {row.exact}, measured' in str(result)
    if name == 'median':
      assert row.exact is row.holds is None
    else:  # at these sizes every vector attains the constant
      assert row.low - 1e-4 <= row.exact <= row.high + 1e-4
  assert (rows['desketch is linear'].measured > 0.1) is (name == 'median')
  assert ('desketch is adjoint' in rows) is (name != 'median')


@pytest.mark.nightly
def test_a_false_property_fails_its_row():
  """Catches a verdict that nothing fails."""
  gaussian, stating = OPERATORS['gaussian'], operators.stating
  false = {
    'bias, in standard errors': stating(Halved(16), adjoint_scale=2.0),
    'desketch is adjoint': stating(gaussian, adjoint_scale=2.0),
  }
  verify = lambda op: sketches.verify(op, 64, KEY, draws=2000)
  for quantity, op in false.items():
    assert failed(verify(op)) == [quantity]
  assert failed(verify(stating(gaussian, alpha=lambda like: 3.2))) == MOMENTS


def other(kind, name, **parts):
  return type(name, (kind,), parts)


short = lambda self, key, table, like: jnp.zeros(3)
SUMS = {size: lambda self, tree, n=size: jnp.ones(n) for size in (16, 17)}
WRONG = {  # an operator, and what verify names
  other(sketches.ams, 'Short', desketch=short): 'desketch',
  other(sketches.ams, 'Silent', properties=None): 'properties',
  other(sketches.ams, 'Long', zero_table=SUMS[17]): 'zero_table',
  other(sketches.ams, 'Ones', zero_table=SUMS[16]): 'zero',
}
ShortCodec = other(type(codecs.make('sign')), 'ShortCodec', decode=short)


@pytest.mark.usefixtures('own_parts')
def test_shapes_that_do_not_suit_are_refused():
  """Catches a trace of JAX, and a table of sums that is taken for zero."""
  for kind, name in WRONG.items():
    with pytest.raises(ValueError, match=f'{kind.__name__}.*{name}'):
      sketches.verify(kind(16), 64, KEY)
  sketches.register(next(iter(WRONG)))
  codecs.register(ShortCodec)
  for fields in (
    {'algorithm': 'safl', 'sketch': 'Short(size=16)'},
    {'algorithm': 'fedcom', 'codec': 'ShortCodec'},
  ):
    with pytest.raises(ValueError, match=r'de(sketch|code) has shapes \(3,\)'):
      runs.build(SMALL | fields)
