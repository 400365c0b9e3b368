"""Trains a flax nnx model in bfloat16 on two workers that send signs.

  python own_loop.py FOLDER [--steps=300] [--save_every=50]

The workers are two devices of one CPU. Started twice with --num_processes=2 and
--process_id=0 and 1, each process has one of them, with the same numbers. The
same command resumes from the last checkpoint in FOLDER, with the same bits.
"""

import argparse
import functools
import pathlib

from fl_sketch import distributed
from fl_sketch.distributed import multi_host
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from sklearn import datasets

WORKERS, PARTS, ROWS = 2, 4, 16  # each worker: 4 parts of 16 samples in a step

parser = argparse.ArgumentParser()
parser.add_argument('folder', type=pathlib.Path)
parser.add_argument('--steps', type=int, default=300)
parser.add_argument('--save_every', type=int, default=50)
parser.add_argument('--num_processes', type=int)
parser.add_argument('--process_id', type=int)


class Net(nnx.Module):
  """Computes in bfloat16; its parameters are float32."""

  def __init__(self, rngs):
    options = {'dtype': jnp.bfloat16, 'rngs': rngs}
    self.hidden = nnx.Linear(64, 128, **options)
    self.norm = nnx.LayerNorm(128, **options)
    self.out = nnx.Linear(128, 10, **options)

  def __call__(self, x):
    x = nnx.relu(self.norm(self.hidden(x)))
    return self.out(x).astype(jnp.float32)  # the loss is computed in float32


def accumulated(loss):
  """Averages a loss over parts of a batch, of which one is in memory."""

  def mean(params, batch):
    parts = jax.tree.map(lambda x: x.reshape(PARTS, -1, *x.shape[1:]), batch)
    add = lambda total, part: (total + loss(params, part), None)
    # The backward pass computes the activations of a part a second time.
    return jax.lax.scan(jax.checkpoint(add), 0.0, parts)[0] / PARTS

  return mean


def draw(data, seen, worker):
  """Draws a worker's batch; it depends on the number of samples seen alone."""
  size = PARTS * ROWS
  steps = len(data['y']) // (WORKERS * size)  # of an epoch
  epoch, step = divmod(seen // (WORKERS * size), steps)
  order = np.random.default_rng(epoch).permutation(len(data['y']))
  start = (step * WORKERS + worker) * size
  return {name: x[order[start : start + size]] for name, x in data.items()}


def main():
  """Trains or resumes."""
  args = parser.parse_args()
  multi_host.start(None, args.num_processes, args.process_id, workers=WORKERS)
  mesh = jax.make_mesh((WORKERS,), ('data',))
  x, y = datasets.load_digits(return_X_y=True)
  data = {'x': np.float32(x / 16), 'y': np.int32(y)}
  training = {name: x[:1400] for name, x in data.items()}
  held_out = {name: x[1400:] for name, x in data.items()}
  graph, params = nnx.split(Net(nnx.Rngs(0)))

  def loss(params, batch):
    logits = nnx.merge(graph, params)(batch['x'])
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch['y'])
    return each.mean()

  @jax.jit
  def accuracy(params, batch):
    return (nnx.merge(graph, params)(batch['x']).argmax(1) == batch['y']).mean()

  warmup = min(20, args.steps // 2)
  rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, warmup, args.steps)
  mean = distributed.mean_over('data', 'sign(error_feedback=True)')
  tx = optax.chain(mean, optax.clip_by_global_norm(1.0), optax.adamw(rate))
  params = jax.device_put(params, jax.NamedSharding(mesh, jax.P()))
  state = distributed.init(tx, params, mesh)
  train_step = distributed.train_step(accumulated(loss), tx, mesh)
  print(distributed.bytes_per_step(tx, params, mesh).out, 'bytes per step')

  done = seen = 0  # steps, and samples of all workers: the data position
  options = ocp.CheckpointManagerOptions(max_to_keep=3)
  checkpoints = ocp.CheckpointManager(args.folder.absolute(), options=options)
  if last := checkpoints.latest_step():
    like = ocp.args.StandardRestore({'params': params, 'state': state})
    found = ocp.args.Composite(arrays=like, position=ocp.args.JsonRestore())
    found = checkpoints.restore(last, args=found)
    params, state = found.arrays['params'], found.arrays['state']
    done, seen = last, found.position['seen']
  while done < args.steps:
    batch = multi_host.batches(mesh, functools.partial(draw, training, seen))
    params, state, value = train_step(params, state, batch)
    done, seen = done + 1, seen + len(batch['y'])
    if done % args.save_every == 0 or done == args.steps:
      here = jax.tree.map(lambda x: x.addressable_data(0), params)
      right = accuracy(here, held_out)
      print(f'step {done}: loss {value:.9}, accuracy {right:.4f}', flush=True)
      arrays = ocp.args.StandardSave({'params': params, 'state': state})
      position = ocp.args.JsonSave({'seen': seen})
      both = ocp.args.Composite(arrays=arrays, position=position)
      checkpoints.save(done, args=both)
  checkpoints.close()


if __name__ == '__main__':
  main()
