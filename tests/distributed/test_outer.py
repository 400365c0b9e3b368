"""Outer steps: DiLoCo's law, workers that stay equal, what travels."""

from fl_sketch import distributed
from fl_sketch.distributed import bills
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

EVERY, RATE = 4, 0.125
PARAMS = {'a': jnp.ones(4), 'b': jnp.ones((2, 2)), 'c': jnp.ones(3)}
A = np.random.default_rng(0).standard_normal((3, 11, 11), np.float32) / 4
B = np.random.default_rng(1).standard_normal((3, 11), np.float32)
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
  rows = lambda x: jnp.broadcast_to(x, (3, *x.shape))
  params, state = jax.tree.map(rows, (PARAMS, tx.init(PARAMS)))
  for _ in range(steps):
    params, state, places = run(params, state, A, B)
    yield np.array(places)


def twin(steps, fragments):
  """DiLoCo, from the papers: Nesterov on what the workers' mean has moved."""
  fragment = np.repeat([0, fragments - 1, 0], [4, 4, 3])  # a c | b
  anchor, velocity, places = np.ones(11), np.zeros(11), np.ones((3, 11))
  for t in range(1, steps + 1):
    errors = np.einsum('nij,nj->ni', A, places) - B
    places = places - RATE * (np.einsum('nij,ni->nj', A, errors) + places / 2)
    change = anchor - places.mean(0)
    due = t % EVERY == fragment * EVERY // fragments
    velocity = np.where(due, 0.9 * velocity + change, velocity)
    anchor = np.where(due, anchor - 0.7 * (change + 0.9 * velocity), anchor)
    places = np.where(due, anchor, places)
    yield [np.tile(anchor, (3, 1)), places]


@pytest.mark.parametrize('fragments', [1, 2])
def test_is_its_numpy_twin(fragments):
  """Catches a wrong sign, momentum of workers, a fragment at another's step."""
  options = {'every': EVERY, 'fragments': fragments}
  inner = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(RATE))
  tx = distributed.outer(inner, None, DENSE, **options)
  got = np.array([*play(tx, 12)])
  np.testing.assert_allclose(got, [*twin(12, fragments)], 2e-5, atol=2e-6)
  anchor = got[EVERY - 1 :: EVERY, :, :, :4]  # of `a`, to the last bit
  assert (anchor == anchor[:, :1, :1]).all()


@pytest.mark.parametrize('fragments', [2, 6])
def test_a_fragment_travels_at_a_time(fragments):
  """Catches all fragments in one step, and leaves dealt out unevenly."""
  options = {'every': 6, 'fragments': fragments}
  tx = distributed.outer(optax.sgd(1.0), None, DENSE, **options)
  layer = {'w': jnp.ones((32, 16)), 'b': jnp.ones(8)}
  mesh = jax.sharding.AbstractMesh((4,), ('data',))
  found = bills.bytes_per_step(tx, dict.fromkeys('abcdef', layer), mesh)
  assert (found.out, found.least) == (2 * 3 / 4 * 4 * 520 * 6 / fragments, 0)


def test_an_algorithm_is_no_mean():
  """Catches updates of an algorithm that are taken for a mean."""
  mean = distributed.algorithm('demo', 'data', 1.0)
  with pytest.raises(ValueError, match='mean'):
    distributed.outer(optax.sgd(1.0), None, mean, every=8)
