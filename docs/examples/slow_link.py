"""Trains a character decoder on workers that send compressed gradients.

  python slow_link.py TEXT FOLDER [--workers=4] [--steps=2000] [--dense]

Started in N processes with --num_processes=N and --process_id=0 ... N-1, or by
Slurm, Open MPI or Kubernetes, it trains the same model. FOLDER gets
metrics.jsonl and checkpoints; the same command resumes from the last one.
"""

import argparse
import functools
import json
import pathlib

from fl_sketch import distributed, models
from fl_sketch.data import tokenization
from fl_sketch.distributed import multi_host
from fl_sketch.models import losses
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp

LENGTH, WINDOWS = 64, 3  # characters of a window, windows of a worker's batch
SIZES = {'width': 128, 'depth': 4, 'heads': 4}  # nanoGPT's, for a CPU
TWO_BITS = "eden(bits=2, scale='least_squares', error_feedback=True)"

parser = argparse.ArgumentParser()
parser.add_argument('text', type=pathlib.Path)
parser.add_argument('folder', type=pathlib.Path)
parser.add_argument('--workers', type=int, default=4)
parser.add_argument('--steps', type=int, default=2000)
parser.add_argument('--save_every', type=int, default=100)
parser.add_argument('--dense', action='store_true')
parser.add_argument('--num_processes', type=int)
parser.add_argument('--process_id', type=int)


def draw_batch(tokens, step, worker):
  """Draws the windows of a worker, a pure function of step and worker."""
  rng = np.random.default_rng((step, worker))
  starts = rng.integers(len(tokens) - LENGTH, size=(WINDOWS, 1))
  windows = tokens[starts + np.arange(LENGTH + 1)]
  return {'x': windows[:, :-1], 'y': windows[:, 1:]}


def optimizer(steps, dense):
  """AdamW on the dense mean; or Muon, averaged every 8 steps in two bits."""
  peak = 6e-3 if dense else 1e-2
  schedule = optax.warmup_cosine_decay_schedule(
    peak / 100, peak, min(100, steps // 2), steps, peak / 10
  )
  clip = optax.clip_by_global_norm(1.0)
  if dense:
    adamw = optax.adamw(schedule, b2=0.99, weight_decay=0.1)
    return optax.chain(distributed.mean_over('data', 'dense'), clip, adamw)
  muon = optax.contrib.muon(schedule, weight_decay=0.1, consistent_rms=0.2)
  mean = distributed.mean_over('data', TWO_BITS, both_ways=True)
  return distributed.outer(
    optax.chain(clip, muon), optax.sgd(1.0), mean, every=8
  )


def by_number(tree):
  """Returns the leaves of a tree by their numbers, as orbax saves them."""
  return {f'{i}': x for i, x in enumerate(jax.tree.leaves(tree))}


def main():
  """Trains or resumes."""
  args = parser.parse_args()
  processes = None, args.num_processes, args.process_id
  multi_host.start(*processes, workers=args.workers)
  mesh = jax.make_mesh((args.workers,), ('data',))
  letters, tokens = np.unique([*args.text.read_text()], return_inverse=True)
  training, held_out = np.split(
    tokens.astype(np.int32), [len(tokens) * 9 // 10]
  )
  windows = tokenization.windows(held_out, LENGTH)
  windows = {name: x[:240] for name, x in windows.items()}
  model = models.as_model(models.make('gpt_nano', len(letters), **SIZES))
  loss, sums = losses.make(model, losses.tokens)
  evaluate = jax.jit(sums)

  tx = optimizer(args.steps, args.dense)
  params = model.init(jax.random.key(0), windows['x'][:1])
  params = jax.device_put(params, jax.NamedSharding(mesh, jax.P()))
  state = distributed.init(tx, params, mesh)
  train_step = distributed.train_step(loss, tx, mesh, donate=True)
  if jax.process_index() == 0:
    print(distributed.bytes_per_step(tx, params, mesh))

  args.folder.mkdir(parents=True, exist_ok=True)
  checkpoints = ocp.CheckpointManager(args.folder.absolute() / 'checkpoints')
  start = checkpoints.latest_step() or 0
  if start:
    like = ocp.args.StandardRestore(by_number((params, state)))
    leaves = checkpoints.restore(start, args=like)
    leaves = [leaves[f'{i}'] for i in range(len(leaves))]
    params, state = jax.tree.structure((params, state)).unflatten(leaves)
  for step in range(start, args.steps):
    draw = functools.partial(draw_batch, training, step)
    batch = multi_host.batches(mesh, draw)
    params, state, value = train_step(params, state, batch)
    row = {'step': step + 1, 'train_loss': float(value)}
    if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
      here = jax.tree.map(lambda x: x.addressable_data(0), params)
      found = evaluate(here, windows)
      row['validation_loss'] = float(found['loss'] / found['count'])
      if jax.process_index() == 0:
        print(row, flush=True)
        with (args.folder / 'metrics.jsonl').open('a') as file:
          file.write(f'{json.dumps(row)}\n')
      leaves = ocp.args.StandardSave(by_number((params, state)))
      checkpoints.save(step + 1, args=leaves)
  checkpoints.close()


if __name__ == '__main__':
  main()
