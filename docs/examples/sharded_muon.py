"""What Muon costs where jit shards matrices: collectives, and CPU seconds.

Prints a row for AdamW and rows for Muon, on 12.6 million numbers over four
devices of the CPU: the figures of docs/guides/slow_link.md.
"""

import re
import time

import jax
import optax

P = jax.sharding.PartitionSpec
WIDTH, LAYERS, STEPS = 512, 4, 3
ROWS = {
  'AdamW, rows over fsdp': (optax.adamw(1e-3), P('fsdp')),
  'Muon, whole on every device': (optax.contrib.muon(1e-3), P()),
  'Muon, rows over fsdp': (optax.contrib.muon(1e-3), P('fsdp')),
  'Muon, columns over fsdp': (optax.contrib.muon(1e-3), P(None, 'fsdp')),
}


def matrices():
  """Return the matrices of a decoder, at random."""
  shapes = (1, 3), (1, 1), (1, 4), (4, 1)
  return [
    jax.random.normal(jax.random.key(i), (rows * WIDTH, cols * WIDTH))
    for i, (rows, cols) in enumerate(LAYERS * shapes)
  ]


def measure(tx, spec):
  """Return the collectives of a step, and its CPU seconds on all devices."""
  mesh = jax.make_mesh(
    (jax.device_count(),), ('fsdp',), axis_types=(jax.sharding.AxisType.Auto,)
  )
  of = lambda x: jax.sharding.NamedSharding(mesh, spec if x.ndim == 2 else P())
  put = lambda tree: jax.tree.map(lambda x: jax.device_put(x, of(x)), tree)
  params = put(matrices())
  state = put(tx.init(params))
  program = jax.jit(tx.update).lower(params, state, params).compile()
  text = program.as_text()
  kinds = 'all-gather', 'all-reduce'
  counts = [len(re.findall(rf' {kind}\(', text)) for kind in kinds]
  jax.block_until_ready(program(params, state, params))
  start = time.process_time()
  for _ in range(STEPS):
    jax.block_until_ready(program(params, state, params))
  return *counts, (time.process_time() - start) / STEPS


if __name__ == '__main__':
  jax.config.update('jax_num_cpu_devices', 4)
  for name, row in ROWS.items():
    gathers, reduces, seconds = measure(*row)
    print(f'| {name} | {gathers} | {reduces} | {seconds:.2f} |', flush=True)
