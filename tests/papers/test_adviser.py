"""The advised learning rate against runs."""

from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
from papers.chen.curvature import adviser
import pytest
from refusals import refused_calls

KEY = jax.random.key(3)
D, B = 256, 16
CURVATURE = np.float32(0.6) ** np.arange(D, dtype=np.float32)
FLAT = np.full(D, 2.0, np.float32)
OPERATORS = {'ams': sketches.ams(B), 'srht': sketches.srht(B)}


def loss_fn(params, batch):
  return jnp.sum(batch['curvature'] * params['w'][None] ** 2) / 2


def advise(sketch, curvature=CURVATURE, **options):
  params = {'w': jnp.ones(len(curvature))}
  batches = {'curvature': curvature[None, None]}
  return adviser.advise(
    loss_fn, params, batches, sketch, key=KEY, steps=24, **options
  )


def descend(op, rates, rounds=100, local_steps=1):
  """The loss at the end in that of the start, for each learning rate."""

  def run(rate):
    def one(w, key):
      local = lambda _, u: u - rate * CURVATURE * u
      moved = w - jax.lax.fori_loop(0, local_steps, local, w)
      w = w - op.desketch(key, op.sketch(key, moved), w)
      return w, jnp.sum(CURVATURE * w**2)

    return jax.lax.scan(one, jnp.ones(D), jax.random.split(KEY, rounds))[1][-1]

  losses = jax.jit(lambda r: jax.lax.map(run, r))(jnp.float32(rates))
  return np.asarray(losses) / CURVATURE.sum()


@pytest.mark.parametrize('name', OPERATORS)
def test_the_advised_rate_converges_and_more_than_twice_it_diverges(name):
  """At d=256, b=16 and intrinsic dimension 2.5; L = 1."""
  op = OPERATORS[name]
  advice = advise(op, probes=64)
  assert advice.intrinsic_dimension == pytest.approx(2.5, abs=0.25)
  assert advice.learning_rate == pytest.approx(0.87, abs=0.02)
  assert 0.058 < advice.pessimistic < 0.063
  rates = [advice.learning_rate, 0.87, 2.2, advice.pessimistic]
  advised, measured, larger, pessimistic = descend(op, rates)
  assert advised < 0.01
  assert measured < 0.01
  assert not larger < 1e4
  assert pessimistic > 5 * advised


def test_no_embedding_gets_the_pessimistic_rule():
  """1 / (L + tr(H) / b) does not hold for uniform sampling: it diverges."""
  op = sketches.uniform_sampling(B)
  choice = advise(op)
  assert choice.learning_rate == choice.pessimistic
  advised, embedding = descend(op, [choice.learning_rate, 0.86])
  assert advised < 0.2
  assert not embedding < 1e4


def test_limits():
  assert advise(sketches.identity()).learning_rate == pytest.approx(1, 1e-4)
  assert advise(sketches.srht(D)).learning_rate == pytest.approx(1, 1e-4)
  pessimistic = 1 / (2 * (1 + D / B))
  assert advise(B, FLAT).pessimistic == pytest.approx(pessimistic, 1e-4)


def test_both_signs_of_curvature_count():
  advice = advise(B, (FLAT * (-1) ** np.arange(D)).astype(np.float32))
  assert advice.lambda_max == pytest.approx(2, 1e-4)
  assert advice.trace.value == pytest.approx(2 * D, 1e-4)
  assert advice.intrinsic_dimension == pytest.approx(D, 1e-4)
  assert advice.learning_rate == pytest.approx(1 / (2 + 2 * D / B), 1e-4)


def test_it_speaks():
  text = str(advise(B, local_steps=5))
  for part in ('server_lr * client_lr <= 0.1', '5 local steps', '16 floats'):
    assert part in text
  assert 'Without the spectrum it would be 0.0118' in text


test_wrong_arguments_are_named = refused_calls(
  (lambda: advise(257), 'b=257 must be <= d=256'),
  (lambda: advise(sketches.count_sketch(3, 5)), 'alpha of count_sketch'),
  (lambda: advise(B, np.zeros(D, np.float32)), 'other than 0'),
)
