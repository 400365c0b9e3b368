"""The links of one chain in three training loops, with the same numbers.

`plain` trains on one device, `under_vmap` on lanes with an axis name, and
`in_shard_map` on the devices of a mesh. Every gradient, or the mean of all,
goes through a sketch of eight numbers.
"""

from fl_sketch import distributed, sketches
from fl_sketch.rounds.transforms import desketch, sketch
import jax
from jax import P
import jax.numpy as jnp
import optax

OPERATOR = sketches.block_cyclic(8)
PARAMS = {'w': jnp.arange(12.0).reshape(3, 4), 'b': jnp.ones(4)}
WORKERS, STEPS = 2, 3


def loss(params, x):
  """The loss of samples f32[samples, 3]."""
  return jnp.square(x @ params['w'] + params['b'][None]).mean()


def optimizer(*mean):
  """Between sketch and desketch, workers average their tables."""
  return optax.chain(
    sketch(OPERATOR), *mean, desketch(OPERATOR), optax.adam(0.1)
  )


def train(tx, params, state, x):
  """One step: of all samples, or of those of a worker."""
  grads = jax.grad(loss)(params, x)
  updates, state = tx.update(grads, state, params)
  return optax.apply_updates(params, updates), state


def plain(x):
  """Train on one device."""
  tx, params = optimizer(), PARAMS
  state = tx.init(params)
  for _ in range(STEPS):
    params, state = train(tx, params, state, x)
  return params


def under_vmap(x):
  """Train on lanes, each with a part of the samples."""
  tx = optimizer(distributed.mean_over('workers'))
  copies = jax.tree.map(lambda v: jnp.stack([v] * WORKERS), PARAMS)
  parts = x.reshape(WORKERS, -1, x.shape[-1])
  on_lanes = lambda fn: jax.vmap(fn, axis_name='workers')
  params, state = copies, on_lanes(tx.init)(copies)
  step = on_lanes(lambda *args: train(tx, *args))
  for _ in range(STEPS):
    params, state = step(params, state, parts)
  return jax.tree.map(lambda v: v[0], params)


def in_shard_map(x):
  """Train on the devices of a mesh, in a shard_map of one's own."""
  mesh = jax.make_mesh((WORKERS,), ('workers',))
  tx = optimizer(distributed.mean_over('workers'))
  specs = distributed.state_specs(tx, PARAMS, mesh)
  value_and_grad = distributed.value_and_grad(loss, 'workers')

  def step(params, state, x):
    value, grads = value_and_grad(params, x)
    updates, state = tx.update(grads, state, params)
    value = jax.lax.pmean(value, 'workers')
    return optax.apply_updates(params, updates), state, value

  step = jax.jit(jax.shard_map(
    step, mesh=mesh, in_specs=(P(), specs, P('workers')),
    out_specs=(P(), specs, P()),
  ))  # fmt: skip
  place = lambda tree, spec: jax.device_put(tree, jax.NamedSharding(mesh, spec))
  params, x = place(PARAMS, P()), place(x, P('workers'))
  state = distributed.init(tx, params, mesh)
  for _ in range(STEPS):
    params, state, _ = step(params, state, x)
  return params
