"""The bills of types, of compiled programs and of their text are the laws."""

import math

import compiled_bills
import compressor_cases as cases
from fl_sketch import distributed
from fl_sketch.distributed import bills
import jax
from jax import lax
import jax.numpy as jnp
import optax
import pytest

P, F16, PAIR = jax.P, jnp.float16, [(0, 1), (1, 0)]
MESH = jax.sharding.AbstractMesh((4, 2), ('slow', 'fast'))
BITS = lambda x: lax.all_gather(jnp.packbits(x > 0), 'b')
SUM = lambda x: lax.psum(x, 'b')
repeat = lambda fn, x, n: lax.scan(lambda c, _: (fn(c), None), x, length=n)[0]
CASES = {  # of float32[16] on each of two workers: operation, type, size, bytes
  'all_reduce float32 16 64': SUM,
  'all_gather uint8 2 2': BITS,
  'all_to_all float32 16 32': (
    lambda x: lax.all_to_all(x.reshape(8, 2), 'b', 1, 0)),
  'reduce_scatter float16 16 16': (
    lambda x: lax.psum_scatter(x.astype(F16), 'b', tiled=True)),
  'permute float32 16 64': lambda x: lax.ppermute(x, 'b', PAIR),
  'all_reduce float32 16 64 x15': (
    lambda x: repeat(lambda y: repeat(lambda z: SUM(z) / 3, y, 3), x, 5)),
  'all_reduce float32 16 64 loop': (
    lambda x: lax.while_loop(lambda c: c.sum() < 9, SUM, x)),
  'all_reduce float32 16 64 branch 1, all_gather uint8 2 2 branch 0': (
    lambda x: lax.cond(x[0] > 0, SUM, lambda x: BITS(x).sum() + x, x)),
  'all_reduce int32 16 64': (
    jax.checkpoint(jax.jit(jax.vmap(lambda x: lax.pmax(x.astype(int), 'b'))))),
  '': lambda x: lax.psum(x, 'a') + lax.axis_index('b'),
}  # fmt: skip
LAWS = [
  (lambda x: lax.psum(x, 'fast') + lax.pmax(x, 'slow'), 160, (96, 64)),
  (lambda x: lax.psum(x, ('slow', 'fast')), 112, (112, 112)),
  (lambda x: lax.pmin((x, x[0]), 'slow'), 102, (102,)),
  (lambda x: lax.all_gather(x, 'slow'), 192, (192,)),
  (lambda x: lax.all_to_all(x, 'slow', 0, 0, tiled=True), 48, (48,)),
  (lambda x: lax.psum_scatter(x, 'slow', tiled=True), 48, (48,)),
  (lambda x: lax.ppermute(x, 'slow', [(0, 0), (1, 2)]), 64, (64,)),
  (lambda x: lax.ppermute(x, 'slow', [(0, 0), (1, 1)]), 0, ()),
]


def text_of(found):
  more = lambda x: x.within or f'x{x.times}' * (x.times > 1)
  row = lambda x: (x.operation, x.dtype, math.prod(x.shape), f'{x.bytes:.0f}')
  line = lambda x: ' '.join(map(str, [*row(x), more(x)])).strip()
  return ', '.join(map(line, found.collectives))


@pytest.mark.parametrize('expected', CASES)
def test_both_walks_find_each_collective(expected):
  """Catches a collective, loop, branch or call that one walk passes over."""
  mesh = jax.make_mesh((1, 2), ('a', 'b'), (jax.sharding.AxisType.Auto,) * 2)
  options = {'in_specs': P(), 'out_specs': P('b'), 'check_vma': False}
  fn = jax.shard_map(CASES[expected], mesh=mesh, **options)
  traced = bills.traced_bytes(fn, jnp.ones(16))
  compiled = compiled_bills.collective_bytes(
    jax.jit(fn).lower(jnp.ones(16)).compile()
  )
  assert text_of(traced) == text_of(compiled) == expected
  assert traced[:3] == compiled[:3]
  if 'branch' in expected:
    assert (traced.out, traced.least) == (64, 2)


@pytest.mark.parametrize(('fn', 'out', 'axes'), LAWS)
def test_laws_of_a_slow_and_a_fast_axis(fn, out, axes):
  """Catches a law of the wrong group, bytes on another axis, whole shards."""
  tx = optax.stateless(lambda grads, _: fn(grads['w']))
  params = {'w': jax.ShapeDtypeStruct((16,), jnp.float32)}
  found = bills.bytes_per_step(tx, params, MESH)
  assert found.out == out
  assert found.by_axis == dict(zip(MESH.axis_names, axes, strict=False))
  assert bills.bytes_per_step(tx, {'w': jnp.ones(32)}, MESH, P('fast')) == found


def test_floats_of_the_models_size_are_seen():
  """Catches the traps: a mean of decoded signs, a gradient that JAX sums."""
  signs = lambda g: jnp.where(lax.all_gather(g > 0, 'fast'), 1, -1).mean(0)
  decoded = lambda g: lax.pmean(jnp.where(g > 0, 1.0, -1.0), 'fast')
  for send, most in ((signs, 0), (decoded, 12)):
    tx = optax.stateless(lambda g, _, send=send: jax.tree.map(send, g))
    found = bills.bytes_per_step(tx, {'w': jnp.ones((3, 4)), 'b': 1.0}, MESH)
    assert found.largest_float == most
  one = jax.sharding.AbstractMesh((1,), ('fast',))
  assert bills.bytes_per_step(tx, jnp.ones(3), one).out == 0
  options = {'mesh': MESH, 'in_specs': (P(), P('fast')), 'out_specs': P()}
  fn = jax.shard_map(jax.grad(lambda w, x: (w * x).sum()), **options)
  found = bills.traced_bytes(fn, jnp.ones((1, 5)), jnp.ones((2, 5)))
  assert found.largest_float == 5


@pytest.mark.representatives('bfloat16()-False')
@pytest.mark.parametrize(('text', 'both'), cases.CASES)
def test_a_compiled_step_sends_what_its_types_say(text, both):
  """Catches numbers that XLA widens: bfloat16 travelled as float32 on CPU."""
  tx = cases.mean_over((text, both))
  mesh = jax.make_mesh((2,), ('data',), (jax.sharding.AxisType.Auto,))
  specs = distributed.state_specs(tx, cases.PARAMS, mesh)
  state = jax.eval_shape(lambda: distributed.init(tx, cases.PARAMS, mesh))
  options = {'in_specs': (P(), specs, P()), 'out_specs': (P(), specs)}
  fn = jax.shard_map(tx.update, mesh=mesh, check_vma=False, **options)
  lowered = jax.jit(fn).lower(cases.PARAMS, state, cases.PARAMS)
  sent = compiled_bills.collective_bytes(lowered.compile()).out
  expected = bills.bytes_per_step(tx, cases.PARAMS, mesh).out
  assert 0 <= expected - sent <= 4  # equal sums of scalars are one
