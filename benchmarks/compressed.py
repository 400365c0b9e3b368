"""Bench of compressors in a training step: compilation, and time of a codec.

Compilation is measured as CPU seconds of a step's tracing and compiling, in a
process of its own each, against a step that is written by hand: all gradients
as one vector, `pmean`, and Adam. Encoding and decoding are measured against a
copy of as many numbers, in turn.
"""

from collections.abc import Iterator, Sequence
import functools
import itertools
import json
import subprocess
import sys
import time

from fl_sketch import codecs, distributed
from fl_sketch.utils import markdown
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import optax
import tqdm

from . import timing

BY_HAND = 'by hand'
COMPILED = (
  ('dense', False), ('bfloat16', False), ('sign(error_feedback=True)', False),
  ('eden(bits=2)', False), ('eden(bits=2)', True),
  ('block_srht(size=0.32) | eden(rotate=False)', False),
  ('chunked_top_k(k=40, error_feedback=True)', False),
  ('power_sgd(rank=4)', False),
)  # fmt: skip
CODECS = {
  'bfloat16': codecs.make('bfloat16'), 'int8': codecs.make('int8'),
  'sign': codecs.make('sign'), 'eden, two bits': codecs.make('eden', bits=2),
}  # fmt: skip


def _hand_written(loss, mesh):
  """A step with one vector of gradients, as one writes it without a library."""
  tx = optax.adam(1e-3)

  def local(params, state, batch):
    value, grads = distributed.value_and_grad(loss, 'data')(params, batch)
    vector, restore = ravel_pytree(grads)
    grads = restore(jax.lax.pmean(vector, 'data'))
    updates, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    return params, state, jax.lax.pmean(value, 'data')

  specs = {
    'in_specs': (jax.P(), jax.P(), jax.P('data')), 'out_specs': jax.P(),
    'check_vma': False,
  }  # fmt: skip
  return tx.init, jax.jit(jax.shard_map(local, mesh=mesh, **specs))


def compile_seconds(text: str, both_ways: bool, leaves: int) -> float:
  """CPU seconds of tracing and compiling a step over arrays of 64 x 32."""
  mesh = jax.make_mesh((2,), ('data',))
  params = {f'{i}': jnp.ones((64, 32)) for i in range(leaves)}

  def loss(params, batch):
    return sum(jnp.square(batch @ x).mean() for x in params.values())

  if text == BY_HAND:
    init, step = _hand_written(loss, mesh)
    state = init(params)
  else:
    mean = distributed.mean_over('data', text, both_ways=both_ways)
    tx = optax.chain(mean, optax.adam(1e-3))
    state = distributed.init(tx, params, mesh)
    step = distributed.train_step(loss, tx, mesh)
  rows = jax.NamedSharding(mesh, jax.P('data'))
  batch, begun = jnp.ones((2, 64), device=rows), time.process_time()
  step.lower(params, state, batch).compile()
  return time.process_time() - begun


def compare_compilation(leaves: Sequence[int], package: str) -> str:
  """Return a table of CPU seconds over those of the step written by hand."""
  cases = [(BY_HAND, False), *COMPILED]
  bar = tqdm.tqdm([*itertools.product(leaves, cases)], desc='compiling')
  found = {}
  for count, (text, both) in bar:
    work = 'worker', 'compile', text, f'{both}', f'{count}'
    command = [sys.executable, '-m', package, *work]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found[count, text, both] = json.loads(said)
  rows = []
  for text, both in cases:
    row = [f'{text}{", both ways" if both else ""}']
    for count in leaves:
      seconds = found[count, text, both]
      row.append(
        f'{seconds:.2f} ({seconds / found[count, BY_HAND, False]:.2f})'
      )
    rows.append(row)
  head = 'CPU seconds (over by hand)', *(f'{n} arrays' for n in leaves)
  return markdown.table(head, rows, left=1)


def compare_codecs(dims: Sequence[int], repeats: int) -> Iterator[str]:
  """Yield a table for each number of coordinates, as ratios to a copy."""
  for d in dims:
    x, key = jnp.linspace(-1, 1, d), jax.random.key(0)
    copy = jax.jit(lambda x: x * 2)
    calls = [functools.partial(copy, x)]
    for codec in CODECS.values():
      encode = jax.jit(codec.encode)
      decode = jax.jit(functools.partial(codec.decode, like=x))
      payload = encode(key, x)
      calls += (
        functools.partial(encode, key, x),
        functools.partial(decode, key, payload),
      )
    base, *times = timing.medians(calls, repeats)
    pairs = zip(CODECS, zip(times[::2], times[1::2], strict=True), strict=True)
    rows = [[name, *(f'{t / base:.1f}' for t in pair)] for name, pair in pairs]
    head = (
      f'{d:,} numbers; a copy: {1e9 * base / d:.2f} ns each',
      'encode',
      'decode',
    )
    yield markdown.table(head, rows, left=1)
