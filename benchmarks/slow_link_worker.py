"""One process of the bench over slow links: training steps, on command.

slow_link_worker.py jax|torch PROCESS_ID PROCESSES HOST:PORT

All contestants train one decoder of characters, of nanoGPT's settings for CPUs,
on noise, with AdamW, each process on one core. A line `STEPS CONTESTANT` is
answered by its seconds. Each library is imported only where it is asked for.
"""

import json
import os
import sys
import time

TOKENS, WIDTH, DEPTH, HEADS, LENGTH, WINDOWS = 65, 128, 4, 4, 64, 3
_TABLES = 'block_srht(size=0.32) | eden(rotate=False)'  # d / 100 in bytes
_WARM = 5  # steps: PowerSGD begins to compress in the third


def jax_steps(process_id, processes, coordinator):
  """Returns steps by contestant, the number of parameters and the version."""
  from fl_sketch import distributed, models
  from fl_sketch.training import devices
  import jax
  import jax.numpy as jnp
  import numpy as np
  import optax

  devices.start(
    cpu_devices=1, coordinator=coordinator, num_processes=processes,
    process_id=process_id,
  )  # fmt: skip
  mesh = jax.make_mesh((processes,), ('data',))
  sizes = dict(width=WIDTH, depth=DEPTH, heads=HEADS)
  model = models.make('gpt_nano', TOKENS, **sizes)
  text = np.random.default_rng(process_id).integers(
    TOKENS, size=(WINDOWS, LENGTH + 1), dtype=np.int32
  )
  batch = jax.make_array_from_process_local_data(
    jax.NamedSharding(mesh, jax.P('data')), text
  )
  everywhere = jax.NamedSharding(mesh, jax.P())
  init = jax.jit(model.init, out_shardings=everywhere)
  params = init(jax.random.key(0), text[:, :-1])['params']

  def loss(params, text):
    logits = model.apply({'params': params}, text[:, :-1])
    each = optax.softmax_cross_entropy_with_integer_labels
    return each(logits, text[:, 1:]).mean()

  def bfloat16(x):
    return jax.lax.pmean(x.astype(jnp.bfloat16), 'data').astype(x.dtype)

  one_bit = lambda **ways: distributed.mean_over('data', _TABLES, **ways)
  means = {
    'JAX': distributed.mean_over('data', 'dense'),
    'JAX, bfloat16': optax.stateless(lambda g, _: jax.tree.map(bfloat16, g)),
    'one-bit tables': one_bit(),
    'one-bit tables, both ways': one_bit(both_ways=True),
  }

  def step_of(mean):
    tx = optax.chain(mean, optax.adamw(1e-3))
    state = [params, distributed.init(tx, params, mesh)]
    update = distributed.train_step(loss, tx, mesh)

    def step():
      *state[:], value = update(*state, batch)
      jax.block_until_ready((state, value))

    return step

  count = sum(x.size for x in jax.tree.leaves(params))
  return {k: step_of(v) for k, v in means.items()}, count, jax.__version__


def torch_steps(process_id, processes, coordinator):
  """Returns the same of PyTorch's DistributedDataParallel and its hooks."""
  import torch
  from torch import distributed, nn
  from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks, powerSGD_hook as power_sgd,
  )  # fmt: skip

  torch.set_num_threads(1)
  distributed.init_process_group(
    'gloo', f'tcp://{coordinator}', rank=process_id, world_size=processes
  )

  class Decoder(nn.Module):
    """The decoder of `jax_steps`."""

    def __init__(self):
      super().__init__()
      self.words = nn.Embedding(TOKENS, WIDTH)
      self.positions = nn.Embedding(LENGTH, WIDTH)
      gelu = nn.GELU(approximate='tanh')
      block = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, 0.0, gelu, batch_first=True, norm_first=True
      )
      norm, nested = nn.LayerNorm(WIDTH), {'enable_nested_tensor': False}
      self.blocks = nn.TransformerEncoder(block, DEPTH, norm, **nested)

    def forward(self, x):
      mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
      x = self.words(x) + self.positions.weight
      return self.blocks(x, mask, is_causal=True) @ self.words.weight.T

  torch.manual_seed(process_id)
  text = torch.randint(TOKENS, (WINDOWS, LENGTH + 1))

  def step_of(hook=None, state=None, **buckets):
    model = nn.parallel.DistributedDataParallel(Decoder(), **buckets)
    if hook is not None:
      model.register_comm_hook(state, hook)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-4)

    def step():
      optimizer.zero_grad()
      logits = model(text[:, :-1]).flatten(0, 1)
      nn.functional.cross_entropy(logits, text[:, 1:].flatten()).backward()
      optimizer.step()

    return step

  low_rank = power_sgd.PowerSGDState(
    None, matrix_approximation_rank=1, start_powerSGD_iter=2
  )
  steps = {
    'PyTorch DDP': step_of(),
    'PyTorch DDP, bfloat16': step_of(default_hooks.bf16_compress_hook),
    # In one bucket: over gloo the messages of several are mixed up.
    'PyTorch DDP, PowerSGD': step_of(
      power_sgd.powerSGD_hook, low_rank, bucket_cap_mb=99
    ),
  }
  count = sum(x.numel() for x in Decoder().parameters())
  return steps, count, torch.__version__


def _serve(library, process_id, processes, coordinator):
  answers = os.fdopen(os.dup(1), 'w', buffering=1)
  os.dup2(2, 1)  # gloo prints to standard output
  cores = sorted(os.sched_getaffinity(0))
  os.sched_setaffinity(0, {cores[process_id % len(cores)]})
  begin = {'jax': jax_steps, 'torch': torch_steps}[library]
  steps, *about = begin(process_id, processes, coordinator)
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


if __name__ == '__main__':
  library, process_id, processes, coordinator = sys.argv[1:]
  _serve(library, int(process_id), int(processes), coordinator)
  os._exit(0)  # not after waiting for the other processes
