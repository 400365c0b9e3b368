"""One process of the bench over slow links: training steps, on command.

slow_link_worker.py jax|torch PROCESS_ID PROCESSES HOST:PORT CONTESTANT ...

All contestants train one decoder of characters, of nanoGPT's settings for CPUs,
on noise, each process on one core. A line `STEPS CONTESTANT` is answered by the
seconds they took. Only the library that is asked for is imported.
"""
# pyright: reportMissingImports=false

import functools
import json
import os
import sys
import time

TOKENS, WIDTH, DEPTH, HEADS, LENGTH, WINDOWS = 65, 128, 4, 4, 64, 3
_TABLES = 'block_srht(size=0.32) | eden(rotate=False)'  # d / 100 in bytes
_WARM = 5  # steps: PowerSGD begins to compress in the third


def jax_steps(process_id, processes, coordinator, names):
  """Return steps by contestant, the number of parameters and the version."""
  from fl_sketch import distributed, models
  from fl_sketch.runs import devices
  import jax
  from jax import flatten_util
  import numpy as np
  import optax

  who = dict(num_processes=processes, process_id=process_id)
  devices.start(cpu_devices=1, coordinator=coordinator, **who)
  mesh = jax.make_mesh((processes,), ('data',))
  sizes = dict(width=WIDTH, depth=DEPTH, heads=HEADS)
  model = models.make('gpt_nano', TOKENS, **sizes)
  rng, shape = np.random.default_rng(process_id), (WINDOWS, LENGTH + 1)
  text = rng.integers(TOKENS, size=shape, dtype=np.int32)
  place = lambda *axes: jax.NamedSharding(mesh, jax.P(*axes))
  batch = jax.make_array_from_process_local_data(place('data'), text)
  init = jax.jit(model.init, out_shardings=place())

  def loss(params, text):
    each = optax.softmax_cross_entropy_with_integer_labels
    return each(model.apply(params, text[:, :-1]), text[:, 1:]).mean()

  # One all-reduce: one for each leaf takes four times as long.
  def dense(dtype):
    def update(grads, _):
      x, restore = flatten_util.ravel_pytree(grads)
      return restore(jax.lax.pmean(x.astype(dtype), 'data').astype(x.dtype))

    return optax.stateless(update)

  mean_over = functools.partial(distributed.mean_over, 'data')
  means = {
    'JAX': dense('float32'),
    'JAX bfloat16': dense('bfloat16'),
    'bfloat16 both ways': mean_over('bfloat16', both_ways=True),
    'one-bit tables': mean_over(_TABLES),
    'one-bit tables both ways': mean_over(_TABLES, both_ways=True),
  }

  # What docs/examples/slow_link.py does: eight updates are a step of this.
  bits = "eden(bits=2, scale='least_squares', error_feedback=True)"
  muon = optax.contrib.muon(1e-3, consistent_rms=0.2)
  outer = optax.sgd(1.0), mean_over(bits, both_ways=True)
  eighth = distributed.outer(muon, *outer, every=8)
  adamw = {
    k: (optax.chain(mean, optax.adamw(1e-3)), 1) for k, mean in means.items()
  }
  contestants = adamw | {'two bits every 8 steps': (eighth, 8)}

  def step_of(tx, updates):
    params = init(jax.random.key(0), text[:, :-1])
    state = [params, distributed.init(tx, params, mesh)]
    update = distributed.train_step(loss, tx, mesh, donate=True)

    def step():
      for _ in range(updates):
        state[:] = jax.block_until_ready(update(*state, batch))[:2]

    return step

  steps = {k: step_of(*of) for k, of in contestants.items() if k in names}
  like = jax.eval_shape(init, jax.random.key(0), text[:, :-1])
  return steps, sum(x.size for x in jax.tree.leaves(like)), jax.__version__


def torch_steps(process_id, processes, coordinator, names):
  """Return the same of PyTorch's DistributedDataParallel and its hooks."""
  import torch
  from torch import distributed, nn
  from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook as power_sgd,
  )

  torch.set_num_threads(1)
  distributed.init_process_group(
    'gloo', f'tcp://{coordinator}', rank=process_id, world_size=processes
  )

  class Decoder(nn.Module):
    def __init__(self):
      super().__init__()
      self.words = nn.Embedding(TOKENS, WIDTH)
      self.positions = nn.Embedding(LENGTH, WIDTH)
      options = dict(batch_first=True, norm_first=True)
      options['activation'] = nn.GELU(approximate='tanh')
      block = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, **options
      )
      self.blocks = nn.TransformerEncoder(
        block, DEPTH, nn.LayerNorm(WIDTH), enable_nested_tensor=False
      )

    def forward(self, x):
      mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
      x = self.words(x) + self.positions.weight
      return self.blocks(x, mask, is_causal=True) @ self.words.weight.T

  text = torch.randint(TOKENS, (WINDOWS, LENGTH + 1))

  def step_of(hook=None, state=None, **buckets):
    model = nn.parallel.DistributedDataParallel(Decoder(), **buckets)
    if hook is not None:
      model.register_comm_hook(state, hook)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
      optimizer.zero_grad()
      logits = model(text[:, :-1]).flatten(0, 1)
      nn.functional.cross_entropy(logits, text[:, 1:].flatten()).backward()
      optimizer.step()

    return step

  ranks = dict(matrix_approximation_rank=1, start_powerSGD_iter=2)
  low_rank = power_sgd.PowerSGDState(None, **ranks)
  hooks = {
    'PyTorch DDP': {},
    'PyTorch DDP bfloat16': {'hook': default_hooks.bf16_compress_hook},
    # In one bucket: over gloo the messages of several are mixed up.
    'PyTorch DDP PowerSGD': {
      'hook': power_sgd.powerSGD_hook, 'state': low_rank, 'bucket_cap_mb': 99
    },
  }  # fmt: skip
  steps = {k: step_of(**hook) for k, hook in hooks.items() if k in names}
  count = sum(x.numel() for x in Decoder().parameters())
  return steps, count, torch.__version__


if __name__ == '__main__':
  library, process_id, processes, coordinator, *names = sys.argv[1:]
  answers = os.fdopen(os.dup(1), 'w', buffering=1)
  os.dup2(2, 1)  # gloo prints to standard output
  cores = sorted(os.sched_getaffinity(0))
  os.sched_setaffinity(0, {cores[int(process_id) % len(cores)]})
  begin = {'jax': jax_steps, 'torch': torch_steps}[library]
  steps, *about = begin(int(process_id), int(processes), coordinator, names)
  for step in steps.values():
    for _ in range(_WARM):
      step()
  print(json.dumps([list(steps), *about]), file=answers)
  for line in sys.stdin:
    count, name = line.strip().split(' ', 1)
    begun = time.perf_counter()
    for _ in range(int(count)):
      steps[name]()
    print(time.perf_counter() - begun, file=answers)
  os._exit(0)  # without a barrier with the other processes
