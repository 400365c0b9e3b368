"""Meshes with a fast and a slow axis, and outer steps."""

import compressor_cases as cases
from fl_sketch import distributed
from fl_sketch.distributed import bills
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import optax
import pytest

from tests.distributed.test_mean_over import split

AXES = 'slow', 'fast'
GRADS = np.random.default_rng(0).standard_normal((2, 2, 64), dtype=np.float32)
mesh_of = lambda *s: jax.sharding.Mesh(np.reshape(jax.devices()[:2], s), AXES)


def play(tx, grads, steps):
  """A worker's parameters, zeros at first, after steps of growing gradients."""
  params = jnp.zeros_like(grads)
  state = tx.init(params)
  for i in range(steps):
    updates, state = tx.update((i + 1) * grads, state, params)
    params = optax.apply_updates(params, updates)
  return params


def over(axes, tx, grads, steps=1):
  run = lambda grads: play(tx, grads, steps)
  for axis in reversed(axes):
    run = jax.vmap(run, axis_name=axis)
  return np.array(jax.jit(run)(grads))


@pytest.mark.parametrize('shape', [(2, 2), (1, 2), (2, 1)])
def test_dense_over_the_fast_axis_then_compressed(shape):
  """Catches a codec before the dense mean, and a mean over the other axis."""
  mean = lambda **axes: distributed.mean_over('slow', 'top_k(k=8)', **axes)
  grads, tx = GRADS[: shape[0], : shape[1]], mean(dense_axes=('fast',))
  expected = over(AXES[:1], mean(), grads.mean(1))
  if shape == (2, 2):  # more than there are devices
    got = over(AXES, tx, grads)
  else:
    run = lambda g: play(tx, g[0, 0], 1)[None, None]
    options = {'in_specs': P(*AXES), 'out_specs': P(*AXES)}
    run = jax.shard_map(run, mesh=mesh_of(*shape), **options)
    got = np.array(jax.jit(run)(grads))
  assert (got == expected[0]).all()


def test_shards_are_compressed_by_themselves():
  """Catches one key for all shards, and a norm over all of them."""
  tx = distributed.mean_over('slow', 'qsgd(levels=2)', specs=P('fast'))
  run = lambda grads: over(AXES, tx, grads)
  got = run(grads := np.ones((2, 2, 64), np.float32))
  assert (got[0] == got[1]).all()
  assert (got[0, 0] != got[0, 1]).any()
  grads[:, 1] = np.nan
  np.testing.assert_array_equal(run(grads)[:, 0], got[:, 0])


@pytest.mark.parametrize('role', ['dense_axes', 'specs'])
def test_outer_steps_over_two_axes(role):
  """Catches a state that shards share, and a dense mean that is not taken."""
  over_fast = {'dense_axes': 'fast', 'specs': P('fast')}[role]
  tx = lambda **axes: distributed.outer(
    optax.adam(0.1), None, distributed.mean_over('slow', **axes), every=2
  )
  grads = GRADS.mean(1) if role == 'dense_axes' else GRADS.reshape(2, 128)
  expected = over(AXES[:1], tx(), grads, steps=4).reshape(2, -1, 64)
  got = over(AXES, tx(**{role: over_fast}), GRADS, steps=4)
  np.testing.assert_allclose(got - expected, 0, atol=1e-6)


@pytest.mark.nightly
def test_train_step_with_outer_steps():
  """Catches gradients at the anchor, and workers that drift apart."""
  mean = distributed.mean_over('slow', 'qsgd(levels=15)', both_ways=True)
  tx = distributed.outer(optax.adamw(0.1), None, mean, every=3)
  loss = lambda params, batch: jnp.mean((batch @ (params['w'] - 1)) ** 2)
  params, batch = {'w': jnp.zeros(8)}, GRADS.reshape(32, 8)
  state = distributed.init(tx, params, mesh := mesh_of(2, 1))
  step = distributed.train_step(loss, tx, mesh)
  losses = []
  for i in range(6):
    params, state, value = step(params, state, batch)
    losses.append(value)
    one, other = (np.asarray(x.data) for x in params['w'].addressable_shards)
    assert (one == other).all()
    moved = np.asarray(state.moved.value['w'])  # [workers, 8]
    assert (moved[0] == moved[1]).all() == (moved == 0).all() == (i % 3 == 2)
  assert losses[0] > losses[1] > losses[5]  # workers move in between


def test_sharded_parameters_are_compressed_on_devices():
  """Catches a state of the whole model's shape, or moments that are whole."""
  mesh = jax.make_mesh((1, 2), ('slow', 'fast'))
  specs = {'w': jax.P('fast'), 'b': jax.P()}
  params = {'w': jnp.ones((4, 3)), 'b': jnp.ones(3)}
  place = lambda x, spec: jax.device_put(x, jax.NamedSharding(mesh, spec))
  params = jax.tree.map(place, params, specs)
  feedback = 'sign(error_feedback=True)'
  mean = distributed.mean_over('slow', feedback, specs=specs)
  tx = optax.chain(mean, optax.adam(0.1))
  state = distributed.init(tx, params, mesh, specs)
  of_state = distributed.state_specs(tx, params, mesh, specs)
  assert of_state[1][0].mu == specs
  assert state[1][0].mu['w'].shape == (4, 3)
  step = jax.jit(jax.shard_map(
    lambda g, s: tx.update(g, s), mesh=mesh, in_specs=(specs, of_state),
    out_specs=(specs, of_state), check_vma=False,
  ))  # fmt: skip
  updates, state = step(params, state)
  assert updates['w'].shape == (4, 3)
  one, other = (np.asarray(x.data) for x in updates['b'].addressable_shards)
  assert (one == other).all()
  step(params, state)


@pytest.mark.parametrize('case', split(cases.CASES, cases.FAST))
def test_many_workers_with_shards_pass_the_check_of_what_varies(case):
  """Catches a loop that starts from what is shared; 12 workers, traced only."""
  tx = cases.mean_over(case, axis='slow', specs=P('fast'))
  mesh = jax.sharding.AbstractMesh((12, 2), AXES)

  def step(params):
    grads = jax.lax.pcast(params, AXES, to='varying')
    updates, _ = tx.update(grads, tx.init(params))
    return jax.tree.map(lambda x: x[None], updates)

  specs = {'in_specs': P(), 'out_specs': P('fast')}
  step = jax.shard_map(step, mesh=mesh, **specs)
  got = jax.eval_shape(step, cases.PARAMS)
  assert {k: x.shape[1:] for k, x in got.items()} == cases.SHAPES


def test_gradients_stay_local_over_both_axes():
  """Catches gradients that JAX adds up, of any argument, over the fast axis."""
  tx = distributed.mean_over('slow', dense_axes='fast')
  loss = lambda x, params: (x @ params).sum()
  both = distributed.value_and_grad(loss, AXES, argnums=(0, 1))

  def step(params, x):
    _, (_, grads) = both(x, params)
    return tx.update(grads, tx.init(params))[0]

  x, params = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)
  specs = {'in_specs': (P(), P(AXES)), 'out_specs': P()}
  step = jax.shard_map(step, mesh=mesh_of(1, 2), **specs)
  np.testing.assert_array_equal(jax.jit(step)(params, x), x.mean(0))


RATE = 0.125
PARAMS = {'a': jnp.ones(4), 'b': jnp.ones((2, 2)), 'c': jnp.ones(3)}
A = np.random.default_rng(0).standard_normal((3, 11, 11), np.float32) / 4
B = np.random.default_rng(1).standard_normal((3, 11), np.float32)
DENSE = distributed.mean_over('data')


def played(tx, steps):
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


def twin(steps, every, fragments, delay=0, blend=0.0):
  """DiLoCo, from the papers: Nesterov on what the workers' mean has moved."""
  fragment = np.repeat([0, 1, 2], [4, 4, 3]) % fragments  # of a, b and c
  anchor, velocity, places = np.ones(11), np.zeros(11), np.ones((3, 11))
  due = lambda t: (t > 0) & (t % every == fragment * every // fragments)
  change = np.zeros(11)
  for t in range(1, steps + 1):
    errors = np.einsum('nij,nj->ni', A, places) - B
    places = places - RATE * (np.einsum('nij,ni->nj', A, errors) + places / 2)
    change = np.where(due(t), anchor - places.mean(0), change)
    now = due(t - delay)
    velocity = np.where(now, 0.9 * velocity + change, velocity)
    anchor = np.where(now, anchor - 0.7 * (change + 0.9 * velocity), anchor)
    places = np.where(now, blend * places + (1 - blend) * anchor, places)
    yield [np.tile(anchor, (3, 1)), places]


@pytest.mark.parametrize(('every', 'fragments', 'delay', 'blend'), [
  (4, 1, 0, 0), (4, 2, 0, 0), (5, 3, 0, 0.25), (5, 3, 2, 0.5), (4, 1, 3, 0),
])  # fmt: skip
def test_is_its_numpy_twin(every, fragments, delay, blend):
  """Catches a wrong sign, momentum of workers, a fragment at another's step.

  With a delay: an average that is applied before it was sent, or twice, and a
  worker that forgets or counts twice what it did in between.
  """
  options = {'every': every, 'fragments': fragments, 'delay': delay}
  options['blend'] = blend
  inner = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(RATE))
  tx = distributed.outer(inner, None, DENSE, **options)
  got = np.array([*played(tx, 12)])
  np.testing.assert_allclose(got, [*twin(12, **options)], 2e-5, atol=2e-6)
  if not delay and not blend:
    anchor = got[every - 1 :: every, :, :, :4]  # of `a`, to the last bit
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
