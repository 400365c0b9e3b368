"""Mistakes in `distributed`: one clear line each, before anything runs."""

import compressor_cases as cases
from fl_sketch import distributed
from fl_sketch.distributed import mean_over, outer, per_worker
import jax
from jax import P
import jax.numpy as jnp
import numpy as np
import optax
import pytest

MESH = jax.make_mesh((2,), ('data',))
TWO = jax.make_mesh((1, 2), ('slow', 'fast'))
SINGLE = jax.sharding.Mesh(np.array(jax.devices()[:1]), ('data',))
PARAMS = {'w': jnp.ones((3, 4)), 'b': jnp.ones(4)}
X, KEY = jnp.ones((4, 3)), jax.random.key(0)
adam, sgd, trace = optax.adam(0.1), optax.sgd(0.1), optax.trace(0.9)
chain = lambda *parts: optax.chain(*parts, adam)
mean = mean_over('data')
TX, signs = chain(mean), chain(mean_over('data', 'sign(error_feedback=True)'))
multi = lambda tx: optax.MultiSteps(tx, 2)
finite = lambda tx: optax.apply_if_finite(tx, 2)
parts = {'w': True, 'b': False}
hole = optax.partition({True: mean, False: optax.identity()}, parts)
seldom = optax.conditionally_transform(mean, lambda i: i % 2 == 0)
diloco = lambda mean=mean, **options: outer(sgd, None, mean, every=4, **options)
init = distributed.init


def loss(params, batch, *_):
  return jnp.mean((batch['x'] @ params['w'] + params['b'][None]) ** 2)


def step(tx=TX, loss=loss, mesh=MESH, params=PARAMS, more=(), state=None,
         has_aux=False, **batch):  # fmt: skip
  """Traces a step."""
  if state is None:
    state = jax.eval_shape(lambda p: init(tx, p, mesh), params)
  train_step = distributed.train_step(loss, tx, mesh, has_aux=has_aux)
  jax.eval_shape(train_step, params, state, {'x': X} | batch, *more)


def own(grad, axis='data'):
  """Traces a shard_map of one's own."""
  specs = P(), distributed.state_specs(TX, PARAMS, MESH)
  local = lambda params, state, x: TX.update(
    grad(loss, axis)(params, {'x': x})[1], state, params
  )
  place = lambda tree, spec: jax.device_put(tree, jax.NamedSharding(MESH, spec))
  args = place(PARAMS, P()), init(TX, PARAMS, MESH), place(X, P('data'))
  options = {'mesh': MESH, 'in_specs': (*specs, P('data')), 'out_specs': specs}
  jax.eval_shape(jax.shard_map(local, **options), *args)


def traced(tx):
  """Traces a step on a mesh whose inner axis jit shards."""
  mesh = jax.sharding.AbstractMesh((2, 2), ('slow', 'fsdp'))
  cases.traced(tx, {'w': jnp.ones(512)}, mesh, P('fsdp'))


def noisy(params, state, batch, key):
  """A step whose weights get the noise of each worker."""
  grads = jax.grad(loss)(params, batch)
  updates, state = TX.update(grads, state, params)
  noise = jax.tree.map(lambda x: jax.random.normal(key, x.shape), updates)
  return jax.tree.map(jnp.add, params, noise), state, jnp.float32(0)


sharded = mean_over('slow', specs=P('fsdp'))
small = lambda params: jax.tree.map(lambda x: x.size < 300, params)
add_noise = distributed.map_step(noisy, TX, MESH)
in_worker = per_worker(multi(outer(sgd, None, sharded, every=4)), 'slow')
specs = lambda spec: init(TX, PARAMS, MESH, {'w': spec, 'b': P()})
MISTAKES = [
  # Wrappers.
  (lambda: step(chain(trace, mean)), r'state\[0\].trace.*behind.*per_worker'),
  (lambda: step(chain(optax.scale_by_adam(), mean)), r'state\[0\].mu'),
  (lambda: step(multi(TX)), 'state.acc_grads.*per_worker'),
  (lambda: step(multi(diloco())), 'state.acc_grads'),
  (lambda: step(finite(TX)), 'apply_if_finite.*behind'),
  (lambda: step(per_worker(finite(TX), 'data')), 'apply_if_finite.*behind'),
  (lambda: step(chain(optax.masked(mean, parts))), r"\['b'\].*partition"),
  (lambda: step(chain(hole)), r"\['b'\].*partition"),
  (lambda: step(chain(seldom)), 'copies of an array apart'),
  (lambda: traced(chain(optax.masked(sharded, small))), 'copies of an array'),
  (lambda: traced(in_worker), 'outer must not stand in per_worker'),
  (
    lambda: add_noise(PARAMS, init(TX, PARAMS, MESH), {'x': X}, KEY),
    'nothing that a worker draws',
  ),
  (lambda: step(adam), 'over data. Give each array a mean_over'),
  (lambda: init(optax.adam, PARAMS, MESH), 'tx must be an optax'),
  (lambda: step(chain(mean, optax.contrib.reduce_on_plateau())), "'value'"),
  # Axes and specs.
  (lambda: step(chain(mean_over('date'))), 'date'),
  (lambda: step(chain(mean_over('slow')), mesh=TWO), 'over fast. Give each'),
  (lambda: step(chain(mean_over('slow', specs=P('fast'))), mesh=TWO), 'fast'),
  (lambda: mean_over('data', dense_axes='data'), 'each once'),
  (lambda: mean_over(()), 'one mesh axis at least'),
  (lambda: step(chain(per_worker(trace, 'date'), mean)), 'date'),
  (lambda: TX.update(PARAMS, TX.init(PARAMS), PARAMS), 'There is no mesh axis'),
  (lambda: own(lambda loss, _: jax.value_and_grad(loss)), 'value_and_grad'),
  (lambda: own(distributed.value_and_grad, 'x'), "no mesh axis 'x'"),
  (lambda: specs(P('x')), 'x .*not found in mesh'),
  (lambda: specs(P(None, None, 'data')), 'rank at least 3'),
  (lambda: distributed.train_step(TX, loss, MESH), 'tx must be'),
  (lambda: init(TX, MESH, PARAMS), 'mesh must be'),
  # Types.
  (lambda: step(more=(jax.random.PRNGKey(0),)), 'PRNGKey'),
  (lambda: step(params=PARAMS | {'n': 1}), 'int32'),
  (lambda: step(signs, params=PARAMS | {'c': 1j}), 'complex64'),
  # Batches and losses.
  (lambda: step(x=jnp.ones((3, 3))), r"batch\['x'\] has shape \(3, 3\)"),
  (lambda: step(n=2.0), r"batch\['n'\] has shape \(\).*after the batch"),
  (lambda: step(loss=lambda *args: (loss(*args), {})), 'scalar-output'),
  (lambda: step(has_aux=True), 'two-element tuple'),
  # States.
  (lambda: step(signs, state=signs.init(PARAMS)), 'distributed.init'),
  (lambda: step(signs, state=init(signs, PARAMS, SINGLE)), 'this mesh'),
  (lambda: step(state=init(TX, {'w': X}, MESH)), 'these params'),
  (lambda: step(state=init(adam, PARAMS, MESH)), 'this tx'),
  # Compressors and outer steps.
  (lambda: mean_over('data', 'eden | eden'), 'a codec, a sketch'),
  (lambda: mean_over('data', 'onebit_adam'), 'not a mean'),
  (
    lambda: init(distributed.algorithm('marina', 'data', 0.1), PARAMS, MESH),
    'gradients at two points',
  ),
  (lambda: mean_over('data', both_ways=True), 'requires a codec'),
  (lambda: init(diloco(fragments=3), PARAMS, MESH), '2 arrays'),
  (lambda: diloco(TX), 'of distributed.mean_over'),
]


@pytest.mark.parametrize(('call', 'words'), MISTAKES)
def test_a_mistake_is_one_line(call, words):
  """Catches other numbers without a word, and a page of JAX for a line."""
  with pytest.raises((ValueError, TypeError), match=words) as found:
    call()
  text = str(found.value)
  assert '\n' not in text
  assert len(text) < 240


def test_aux_keys_and_the_state_of_a_model_are_of_all_workers():
  """Catches one key for all workers, and statistics of one of them."""

  def with_state(params, batch, stats, key):
    new = 0.9 * stats + 0.1 * batch['x'].mean(0)
    return loss(params, batch), (new, jax.random.normal(key))

  tx = optax.chain(mean, sgd)
  train_step = distributed.train_step(with_state, tx, MESH, has_aux=True)
  x = jnp.arange(12.0).reshape(4, 3)
  state, stats = init(tx, PARAMS, MESH), jnp.ones(3)
  params, _, (value, (new, noise)) = train_step(
    PARAMS, state, {'x': x}, stats, KEY
  )
  draws = [jax.random.normal(jax.random.fold_in(KEY, i)) for i in range(2)]
  np.testing.assert_allclose(noise, np.mean(draws), rtol=1e-6)
  np.testing.assert_allclose(new, 0.9 + 0.1 * x.mean(0), rtol=1e-6)
  want, grads = jax.value_and_grad(loss)(PARAMS, {'x': x})
  np.testing.assert_allclose(value, want, rtol=1e-6)
  np.testing.assert_allclose(params['w'], 1 - 0.1 * grads['w'], rtol=1e-5)


@pytest.mark.parametrize('donate', [False, True])
def test_a_step_deletes_what_it_is_given_if_it_may(donate):
  """Catches 'Array has been deleted' at the second use of one's parameters."""
  tx = optax.chain(mean, optax.contrib.schedule_free(sgd, 0.1))
  train_step = distributed.train_step(loss, tx, MESH, donate=donate)
  params = jax.device_put(PARAMS, jax.NamedSharding(MESH, P()))
  state = init(tx, params, MESH)
  train_step(params, state, {'x': X})
  used = jax.tree.leaves((params, state[1]))
  assert {x.is_deleted() for x in used} == {donate}


def test_a_step_of_yours_gives_tx_what_it_needs():
  """Catches a check that calls a transformation without the step's `value`."""
  plateau = chain(mean, optax.contrib.reduce_on_plateau())

  def local(params, state, batch):
    value, grads = jax.value_and_grad(loss)(params, batch)
    value = jax.lax.pmean(value, 'data')
    updates, state = plateau.update(grads, state, params, value=value)
    return optax.apply_updates(params, updates), state, value

  train_step = distributed.map_step(local, plateau, MESH)
  state = init(plateau, PARAMS, MESH)
  jax.eval_shape(train_step, PARAMS, state, {'x': X})
