"""Outer steps: DiLoCo's law, workers that stay equal, what travels."""

from fl_sketch import distributed
from fl_sketch.distributed import bills
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

EVERY, RATE = 4, 0.125
PARAMS = {'a': np.ones(4), 'b': np.ones((2, 2)), 'c': np.ones(3)}
A = np.random.default_rng(0).normal(0, 0.25, (3, 11, 11))  # of three workers
B = np.random.default_rng(1).normal(0, 1, (3, 11))
DENSE = distributed.mean_over('data')


def play(tx, steps):
  """Parameters of the loop and of each worker after every step."""
  flat = lambda tree: jnp.concatenate([x.ravel() for x in tree.values()])
  loss = lambda params, a, b: jnp.sum((a @ flat(params) - b) ** 2) / 2

  def step(params, state, *data):
    place = distributed.worker_params(params, state)
    updates, state = tx.update(jax.grad(loss)(place, *data), state, params)
    params = optax.apply_updates(params, updates)
    place = distributed.worker_params(params, state)
    return params, state, [flat(params), flat(place)]

  run = jax.jit(jax.vmap(step, axis_name='data'))
  params = jax.tree.map(jnp.float32, PARAMS)
  rows = lambda x: jnp.broadcast_to(x, (3, *x.shape))
  params, state = jax.tree.map(rows, (params, tx.init(params)))
  trail = []
  for _ in range(steps):
    params, state, places = run(params, state, jnp.float32(A), jnp.float32(B))
    trail.append(places)
  return np.array(trail)


def twin(steps, fragments):
  """DiLoCo, from the papers: Nesterov on what the workers' mean has moved."""
  fragment = np.repeat([0, fragments - 1, 0], [4, 4, 3])  # a c | b
  anchor, velocity, places = np.ones(11), np.zeros(11), np.ones((3, 11))
  for t in range(1, steps + 1):
    residuals = np.einsum('nij,nj->ni', A, places) - B
    places = places - RATE * np.einsum('nij,ni->nj', A, residuals)
    change = anchor - places.mean(0)
    due = t % EVERY == fragment * EVERY // fragments
    velocity = np.where(due, 0.9 * velocity + change, velocity)
    step = 0.7 * (change + 0.9 * velocity)
    anchor = np.where(due, anchor - step, anchor)
    places = np.where(due, anchor, places)
    yield [np.tile(anchor, (3, 1)), places]


@pytest.mark.parametrize('fragments', [1, 2])
def test_is_its_numpy_twin(fragments):
  """Catches a wrong sign, momentum of workers, a fragment at another's step."""
  options = {'every': EVERY, 'fragments': fragments}
  got = play(distributed.outer(optax.sgd(RATE), None, DENSE, **options), 12)
  expected = np.array([*twin(12, fragments)])
  np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
  if fragments == 1:  # all are at the anchor, to the last bit
    exchanged = got[EVERY - 1 :: EVERY]
    assert (exchanged == exchanged[:, :1, :1]).all()


def test_an_exchange_at_every_step_is_a_dense_mean():
  """Catches a step that is made twice, or with another worker's gradient."""
  tx = distributed.outer(optax.sgd(RATE), optax.sgd(1.0), DENSE, every=1)
  dense = optax.chain(DENSE, optax.sgd(RATE))
  np.testing.assert_array_equal(play(tx, 3), play(dense, 3))


def bill(mean, fragments=1):
  """Bytes of `outer` among four workers, six layers of 520 numbers."""
  options = {'every': 6, 'fragments': fragments}
  tx = distributed.outer(optax.sgd(1.0), None, mean, **options)
  layer = {'w': jnp.ones((32, 16)), 'b': jnp.ones(8)}
  mesh = jax.sharding.AbstractMesh((4,), ('data',))
  return bills.bytes_per_step(tx, dict.fromkeys('abcdef', layer), mesh)


@pytest.mark.representatives('table-False', 'sparse-True')
@pytest.mark.parametrize('both_ways', [False, True])
@pytest.mark.parametrize('compressor', [
  pytest.param('block_srht(size=0.1) | eden(rotate=False)', id='table'),
  pytest.param('top_k(k=0.01, error_feedback=True)', id='sparse'),
  'eden(bits=2)', 'bfloat16',
])  # fmt: skip
def test_no_floats_of_the_model_travel(compressor, both_ways):
  """Catches a mean of what was decoded, and traffic between exchanges."""
  mean = distributed.mean_over('data', compressor, both_ways=both_ways)
  found = bill(mean)
  assert found.out > found.least == 0
  floats = [x for x in found.collectives if x.dtype == 'float32']
  assert not [x for x in floats if np.prod(x.shape) > 520]


@pytest.mark.parametrize('fragments', [2, 6])
def test_a_fragment_travels_at_a_time(fragments):
  """Catches all fragments in one step, and leaves dealt out unevenly."""
  found = bill(DENSE, fragments)
  assert found.out == 2 * 3 / 4 * 4 * 520 * 6 / fragments
  assert found.least == 0


@pytest.mark.parametrize(('options', 'message'), [
  ({'every': 2, 'fragments': 3}, 'fragments=3 exceeds every=2'),
  ({'every': 8, 'fragments': 4}, 'fragments=4 exceeds the 3 arrays'),
  ({'every': 8, 'mean': optax.identity()}, 'mean must be of .*mean_over'),
])  # fmt: skip
def test_refusals(options, message):
  """Catches a fragment that is empty or never sent, and devices unaveraged."""
  options = {'inner': optax.sgd(1.0), 'outer': None, 'mean': DENSE} | options
  with pytest.raises(ValueError, match=message):
    distributed.outer(**options).init(PARAMS)
