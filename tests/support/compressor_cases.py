"""The conformance list of compressors, and steps of n workers under vmap."""

import math

from fl_sketch import algorithms, distributed, sketches
from generators import costs
import jax
import jax.numpy as jnp
import optax

SHAPES = {'w': (13, 19), 'b': (19,)}
D = 13 * 19 + 19  # which neither 2 nor 4 workers divide
PARAMS = {name: jnp.ones(shape) for name, shape in SHAPES.items()}

CODECS = {
  'identity': '', 'top_k': 'k=0.1', 'rand_k': 'k=0.1', 'qsgd': 'levels=2',
  'sign': '', 'quantized_top_k': 'k=24, bits=4, bucket=8', 'bfloat16': '',
  'int8': '', 'int4': '', 'eden': 'bits=2', 'chunked_top_k': 'k=2, chunk=16',
  'dct_top_k': 'k=2, chunk=16', 'dct_blocks': 'k=2, side=19',
  'shared_sign': 'bound=2.0',
}  # fmt: skip
_LAYERS = "factory='block_cyclic', size=0.3"
SKETCHES = {'count_sketch': 'rows=3, cols=0.1', 'layerwise': _LAYERS} | {
  name: 'size=0.3, sparsity=2' if 'sparse' in name else 'size=0.3'
  for name in sketches.names()
  if 'size' in sketches.REGISTRY.required(name)[:1]
}
BOTH = 'block_srht(size=0.32) | eden(rotate=False)'
FEEDBACK = 'sign(error_feedback=True)'
COPIES = jax.P()
TEXTS = [
  *(f'{name}({options})' for name, options in CODECS.items()),
  *(f'{name}({options})' for name, options in SKETCHES.items()),
  BOTH, FEEDBACK, 'chunked_top_k(k=2, chunk=16, error_feedback=True)',
  'power_sgd(rank=2)', "demo(codec='dct_top_k(k=2, chunk=16)')", 'dense',
]  # fmt: skip
# Of the texts and both_ways; few are in the fast tier.
CASES = [(text, False) for text in TEXTS] + [
  (text, True) for text in TEXTS
  if 'codec' not in text and (text.split('(')[0] in CODECS or '|' in text)
]  # fmt: skip
FAST = {(FEEDBACK, True), ('power_sgd(rank=2)', False)}


def examples() -> dict[str, dict]:
  """Algorithms that run among workers, with the options of their examples."""
  out = {}
  for name in algorithms.names():
    options = costs.example(name)
    public = 'privacy' not in options and 'graph' not in options
    public &= name != 'marina'  # which takes gradients at two points
    if algorithms.entry(name).work in ('steps', 'gradient') and public:
      out[name] = options
  return out


def traced(tx, params, mesh, specs=COPIES):
  """Traces a step, which refuses copies that would differ."""
  init = lambda params: distributed.init(tx, params, mesh, specs)
  norm = lambda params: sum(jnp.vdot(x, x) for x in jax.tree.leaves(params))
  loss = lambda params, batch: norm(params) * batch.mean()
  step = distributed.train_step(loss, tx, mesh, specs=specs)
  batch = jnp.ones(math.prod(mesh.shape.values()))
  return jax.eval_shape(step, params, jax.eval_shape(init, params), batch)


def gradients(steps: int, workers: int):
  """Gradients [steps, workers, ...] of `PARAMS`."""
  draw = lambda x: jax.random.normal(
    jax.random.key(x.size), (steps, workers, *x.shape)
  )
  return jax.tree.map(draw, PARAMS)


def run(tx: optax.GradientTransformation, grads):
  """Updates [steps, workers, ...] of n workers under `vmap`, and the state."""
  n = jax.tree.leaves(grads)[0].shape[1]
  init = lambda _: tx.init(PARAMS)
  state = jax.vmap(init, axis_name='data')(jnp.arange(n))

  def step(state, grads):
    one = lambda g, s: tx.update(g, s, PARAMS)
    updates, state = jax.vmap(one, axis_name='data')(grads, state)
    return state, updates

  state, updates = jax.jit(lambda s, g: jax.lax.scan(step, s, g))(state, grads)
  return updates, state


def mean_over(case, axis='data', **options) -> optax.GradientTransformation:
  """The transformation of a case."""
  text, both_ways = case
  return distributed.mean_over(axis, text, both_ways=both_ways, **options)
