"""sharded_steps.py PORT PROCESSES PROCESS_ID OUT [CASE ...]: steps on 2 x 2.

Two workers train a model whose arrays jit shards over `fsdp`. A case is JSON of
a compressor, both_ways, and 'sharded', 'outer' (steps) or 'whole' (parameters).
"""

import functools
import json
import pickle
import sys

from fl_sketch import distributed
from fl_sketch.distributed import multi_host
import jax
from jax import P
import jax.numpy as jnp
import numpy as np
import optax

SPECS = {'w': P(None, 'fsdp'), 'v': P('fsdp'), 'b': P()}
SHAPES = {'w': (12, 32), 'v': (32, 8), 'b': (4, 8)}
STEPS = 4


def loss(params, batch):
  """The loss of two layers."""
  hidden = jnp.tanh(batch['x'] @ params['w'])
  y = hidden @ params['v'] + params['b']  # a row for each sample
  return jnp.mean((y - batch['x'][:, :8]) ** 2)


def draw(step, worker):
  """A worker's batch of a step."""
  rng = np.random.default_rng((step, worker))
  return {'x': rng.standard_normal((4, 12), np.float32)}


def transformation(text, both_ways, how, specs):
  """Adam on a mean, behind a norm over all parameters; or outer steps."""
  mean = distributed.mean_over('slow', text, both_ways=both_ways, specs=specs)
  adam = optax.adam(0.01)
  if how == 'outer':
    return distributed.outer(adam, None, mean, every=2, fragments=2)
  return optax.chain(mean, optax.clip_by_global_norm(1.0), adam)


def bits(tree) -> dict:
  """The bits of every part of an array that this process has, by its place."""
  found = {}
  for path, x in jax.tree.leaves_with_path(tree):
    for shard in x.addressable_shards:
      place = jax.tree_util.keystr(path), str(shard.index)
      found.setdefault(place, set()).add(np.asarray(shard.data).tobytes())
  return found


def trained(text, both_ways, how) -> dict:
  """Losses, bytes and bits of a case; also those after a restart."""
  devices = np.array(jax.devices()).reshape(2, 2)
  if how == 'whole':  # a device a worker
    mesh = jax.sharding.Mesh(devices[:, 0], ('slow',))
    specs = dict.fromkeys(SPECS, P())
  else:
    mesh, specs = jax.sharding.Mesh(devices, ('slow', 'fsdp')), SPECS
  tx = transformation(text, both_ways, how, specs)
  rng = np.random.default_rng(0)
  place = lambda x, spec: jax.device_put(x, jax.NamedSharding(mesh, spec))
  init = {k: rng.standard_normal(s, np.float32) / 4 for k, s in SHAPES.items()}
  params = jax.tree.map(place, init, specs)
  state = distributed.init(tx, params, mesh, specs)
  step = distributed.train_step(loss, tx, mesh, specs=specs)
  batch = lambda i: multi_host.batches(mesh, functools.partial(draw, i), 'slow')
  compiled = step.lower(params, state, batch(0)).compile()
  losses, again = [], None
  for i in range(STEPS):
    if i == 2:
      again = restored(params, state)
    params, state, value = step(params, state, batch(i))
    losses.append(float(value))
  for i in range(2, STEPS):
    again = step(*again[:2], batch(i))
  return {
    'losses': losses, 'bits': bits((params, state)), 'again': bits(again[:2]),
    'bill': distributed.bytes_per_step(tx, params, mesh, specs).by_axis,
    'text': compiled.as_text(), 'compiled': step._cache_size(),
  }  # fmt: skip


def restored(*trees):
  """Trees from what a checkpoint has of them."""

  def again(x):
    rows = {
      shard.device: np.asarray(shard.data) for shard in x.addressable_shards
    }
    parts = [jax.device_put(row, device) for device, row in rows.items()]
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)

  return jax.tree.map(again, trees)


if __name__ == '__main__':
  port, count, process_id, out, *cases = sys.argv[1:]
  multi_host.start(f'127.0.0.1:{port}', int(count), int(process_id), workers=4)
  results = {tuple(case): trained(*case) for case in map(json.loads, cases)}
  with open(out, 'wb') as f:
    pickle.dump(results, f)
